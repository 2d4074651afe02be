package wansim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A span is two namespaces and a link between them.
type span struct {
	a, b *Namespace
	tun  *TUN
}

var (
	addrA4, addrB4 = netip.MustParsePrefix("198.18.0.1/30"), netip.MustParsePrefix("198.18.0.2/30")
	addrA6, addrB6 = netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64")
)

func (s *span) ends() (a, b NamespaceEnd) {
	return NamespaceEnd{Namespace: s.a, Addresses: []netip.Prefix{addrA4, addrA6}},
		NamespaceEnd{Namespace: s.b, Addresses: []netip.Prefix{addrB4, addrB6}}
}

// newSpan returns a span that lives as long as the test.
func newSpan(t *testing.T, ab, ba Link) *span {
	t.Helper()
	s := &span{a: newNamespace(t), b: newNamespace(t)}
	a, b := s.ends()
	s.tun = connect(t, a, b, ab, ba)
	return s
}

func connect(t *testing.T, a, b NamespaceEnd, ab, ba Link) *TUN {
	t.Helper()
	tun, err := ConnectNamespaces(context.Background(), a, b, ab, ba)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tun.Close(); err != nil {
			t.Error(err)
		}
	})
	return tun
}

// listen and dial make sockets inside n that end with the test; one that hangs says where.
func listen(t *testing.T, n *Namespace, addr netip.Addr) net.Listener {
	t.Helper()
	var l net.Listener
	err := n.Do(func() (err error) { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, n *Namespace, network, addr string) net.Conn {
	t.Helper()
	var c net.Conn
	err := n.Do(func() (err error) { c, err = net.DialTimeout(network, addr, time.Minute); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// udp returns a socket of n that receives, with room for all that a test sends at once, and one of from that sends to
// it.
func udp(t *testing.T, from, n *Namespace, addr netip.Addr) (sender net.Conn, receiver *net.UDPConn) {
	t.Helper()
	err := n.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	raw, err := receiver.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 64<<20)
	})
	if err != nil {
		t.Fatal(err)
	}
	receiver.SetDeadline(time.Now().Add(time.Minute))
	return dial(t, from, "udp", receiver.LocalAddr().String()), receiver
}

// Both protocols cross the link both ways unharmed, segments joined or not.
func TestTUNCarriesBytes(t *testing.T) {
	data := random(8 << 20)
	for name, l := range map[string]Link{
		"segments joined": {Delay: time.Millisecond},
		"segments apart":  {Delay: time.Millisecond, Rate: joinAbove, Queue: 8 << 20},
		"lossy":           {Delay: time.Millisecond, Loss: 0.001, Seed: 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpan(t, l, l)
			for _, addr := range []netip.Prefix{addrB4, addrB6} {
				l := listen(t, s.b, addr.Addr())
				go func() { // answer with the same
					c, err := l.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					b := mustRead(t, c, len(data))
					mustWrite(t, c, b)
				}()
				c := dial(t, s.a, "tcp", l.Addr().String())
				go mustWrite(t, c, data)
				if !bytes.Equal(mustRead(t, c, len(data)), data) {
					t.Errorf("%v: the bytes differ", addr)
				}
			}
			for _, c := range []Counters{s.tun.Stats().AB, s.tun.Stats().BA} {
				// Twice the data, in packets of at most 1500 bytes with 40 to 72 of headers.
				if minimum := uint64(2 * len(data)); c.Bytes < minimum+minimum/1460*40 || c.Packets < minimum/1460 {
					t.Errorf("%+v carried for %d bytes", c, minimum)
				}
				if (c.Lost > 0) != (l.Loss > 0) || c.Dropped > 0 {
					t.Errorf("%+v at a loss of %v", c, l.Loss)
				}
			}
		})
	}
}

// Of many datagrams exactly the ones are lost that the seed says, so nothing but them is on the link; the others arrive
// in order.
func TestTUNLosesWhatTheSeedSays(t *testing.T) {
	l := Link{Loss: 0.1, Jitter: 100 * time.Microsecond, Seed: 42}
	s := newSpan(t, l, Link{})
	sender, receiver := udp(t, s.a, s.b, addrB4.Addr())
	const count = 5000
	var want []uint32
	model := NewPath(l)
	for i := range uint32(count) {
		mustWrite(t, sender, binary.BigEndian.AppendUint32(nil, i))
		if _, ok := model.Admit(begin, 32); ok {
			want = append(want, i)
		}
	}
	for i, n := range want {
		if got := binary.BigEndian.Uint32(mustRead(t, receiver, 4)); got != n {
			t.Fatalf("the %d. datagram to arrive is %d, want %d", i, got, n)
		}
	}
	wantStats := Stats{AB: Counters{Packets: count, Bytes: count * 32, Lost: uint64(count - len(want))}}
	if got := s.tun.Stats(); got != wantStats {
		t.Errorf("Stats: %+v, want %+v", got, wantStats)
	}
}

// A queue that is full drops; the packets that it holds arrive.
func TestTUNDropsTheTail(t *testing.T) {
	const count, size = 1000, 1000 + 28
	s := newSpan(t, Link{Rate: 100_000, Queue: 10 * size}, Link{})
	sender, receiver := udp(t, s.a, s.b, addrB4.Addr())
	for i := range uint32(count) {
		mustWrite(t, sender, append(binary.BigEndian.AppendUint32(nil, i), make([]byte, 996)...))
	}
	for i := range uint32(10) { // the first ten found room, however long the sending took
		if got := binary.BigEndian.Uint32(mustRead(t, receiver, 1000)); got != i {
			t.Fatalf("datagram %d arrives, want %d", got, i)
		}
	}
	got := s.tun.Stats().AB
	for end := time.Now().Add(10 * time.Second); got.Packets+got.Dropped < count && time.Now().Before(end); got = s.tun.Stats().AB {
		time.Sleep(time.Millisecond) // the last packets may still wait to be read
	}
	if got.Dropped == 0 || got.Packets+got.Dropped != count || got.Bytes != got.Packets*size {
		t.Errorf("%+v for %d packets", got, count)
	}
}

// SetLink acts at once: a packet that is sent into a black hole does not arrive, even after it.
func TestTUNSetLinkMakesABlackHole(t *testing.T) {
	s := newSpan(t, Link{}, Link{})
	sender, receiver := udp(t, s.a, s.b, addrB6.Addr())
	arrives := func(want string) {
		t.Helper()
		mustWrite(t, sender, []byte(want))
		b := make([]byte, 100)
		if n, err := receiver.Read(b); string(b[:n]) != want || err != nil {
			t.Fatalf("%q arrives, %v; want %q", b[:n], err, want)
		}
	}
	arrives("before")
	if err := s.tun.SetLink(Link{Loss: 1}, Link{}); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		mustWrite(t, sender, []byte("lost"))
	}
	for s.tun.Stats().AB.Lost < 50 { // the kernel hands packets over in its own time
		time.Sleep(time.Millisecond)
	}
	if err := s.tun.SetLink(Link{Rate: 1_000_000}, Link{}); err != nil {
		t.Fatal(err)
	}
	arrives("after")
	if err := s.tun.SetLink(Link{}, Link{Queue: -1}); err == nil {
		t.Error("SetLink takes a negative queue")
	}
}

func devices(t *testing.T, n *Namespace) (names []string) {
	t.Helper()
	links, err := n.routes.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Type() == "tuntap" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

func TestTUNEnds(t *testing.T) {
	s := &span{a: newNamespace(t), b: newNamespace(t)}
	a, b := s.ends()
	a.Device = "here"
	for name, end := range map[string]func(cancel context.CancelFunc, tun *TUN){
		"Close":   func(_ context.CancelFunc, tun *TUN) { tun.Close() },
		"context": func(cancel context.CancelFunc, tun *TUN) { cancel(); <-tun.Done() },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tun, err := ConnectNamespaces(ctx, a, b, Link{}, Link{})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Concat(devices(t, s.a), devices(t, s.b)); !slices.Equal(got, []string{"here", "wan0"}) {
			t.Errorf("%s: the devices are %v", name, got)
		}
		end(cancel, tun)
		if err := tun.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := slices.Concat(devices(t, s.a), devices(t, s.b)); len(got) > 0 {
			t.Errorf("%s: %v are left", name, got)
		}
		if err := tun.SetLink(Link{}, Link{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: SetLink: %v, want net.ErrClosed", name, err)
		}
	}
}

// A link that cannot be made is named, and leaves nothing behind.
func TestTUNSaysWhatIsWrong(t *testing.T) {
	s := newSpan(t, Link{}, Link{})
	for want, change := range map[string]func(a, b *NamespaceEnd, l *Link){
		"device wan0 in namespace " + s.b.Name() + ": TUNSETIFF: device or resource busy": func(_, b *NamespaceEnd, _ *Link) {
			b.Device = "wan0"
		},
		"name: ":          func(_, b *NamespaceEnd, _ *Link) { b.Device = "longer-than-allowed" },
		"address invalid": func(_, b *NamespaceEnd, _ *Link) { b.Addresses = make([]netip.Prefix, 1) },
		"route to inv":    func(_, b *NamespaceEnd, _ *Link) { b.Routes = make([]netip.Prefix, 1) },
		"loss of 2":       func(_, _ *NamespaceEnd, l *Link) { l.Loss = 2 },
	} {
		a, b := s.ends()
		a.Device, b.Device = "other", "other"
		var l Link
		change(&a, &b, &l)
		if tun, err := ConnectNamespaces(context.Background(), a, b, Link{}, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			if err == nil {
				tun.Close()
			}
		}
		if got := slices.Concat(devices(t, s.a), devices(t, s.b)); !slices.Equal(got, []string{"wan0", "wan0"}) {
			t.Errorf("the devices are %v", got)
		}
	}
}

// TestMain lets the test binary play the process of TestDevicesDieWithTheirProcess.
func TestMain(m *testing.M) {
	if names := os.Getenv("WANSIM_TEST_SPAN"); names != "" {
		holdSpan(strings.Fields(names))
	}
	os.Exit(m.Run())
}

// holdSpan lays a link between two namespaces and waits to be killed.
func holdSpan(names []string) {
	s := new(span)
	var err error
	for i, n := range []**Namespace{&s.a, &s.b} {
		if *n, err = OpenNamespace(names[i]); err != nil {
			panic(err)
		}
	}
	a, b := s.ends()
	if _, err := ConnectNamespaces(context.Background(), a, b, Link{}, Link{}); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("up\n")
	select {}
}

func TestDevicesDieWithTheirProcess(t *testing.T) {
	require.Root(t)
	a, b := newNamespace(t), newNamespace(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WANSIM_TEST_SPAN="+a.Name()+" "+b.Name())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Errorf("the process says %q, %v", line, err)
	}
	if got := len(devices(t, a)) + len(devices(t, b)); got != 2 {
		t.Errorf("%d devices, want 2", got)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if got := slices.Concat(devices(t, a), devices(t, b)); len(got) > 0 {
		t.Errorf("%v are left by a process that was killed", got)
	}
}
