package tc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/vm"
)

// A bench is two ends and a router between them, each in a namespace of its own, with one UDP socket at each end.
type bench struct {
	a, b     string // the ends' namespaces
	ab, ba   Hop
	from, to *net.UDPConn // from a's socket to b's; to is not connected
}

// Payloads of the probes, which make IPv4 packets of these lengths in bytes.
const (
	headersIPv4 = 28
	fullPacket  = 1500
)

func newBench(t *testing.T) *bench {
	t.Helper()
	router := newNamespace(t, "r")
	w := &bench{a: newNamespace(t, "a"), b: newNamespace(t, "b")}
	w.ab = Hop{Sender: Device{w.a, "wan0"}, In: Device{router, "a0"}, Out: Device{router, "b0"}}
	w.ba = Hop{Sender: Device{w.b, "wan0"}, In: Device{router, "b0"}, Out: Device{router, "a0"}}
	join(t, w.ab.Sender, w.ab.In, atA.Addr())
	join(t, w.ba.Sender, w.ba.In, atB.Addr())
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/disable_ipv6"} {
		inside(t, router, func() error { return os.WriteFile(file, []byte("1"), 0) })
	}
	if vm.Inside() {
		// An old kernel that is busy drops packets that cross a pair of devices beyond 1000.
		if err := os.WriteFile("/proc/sys/net/core/netdev_max_backlog", []byte("100000"), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.to = listen(t, w.b, atB)
	w.from = listen(t, w.a, atA)
	w.roundTrip(t)                          // so that everyone knows the neighbours' addresses
	receive(t, w.from, 20*time.Millisecond) // packets that came late, while they did not
	receive(t, w.to, 20*time.Millisecond)
	return w
}

// join lays a cable between an end, which has the address, and the router, which has number 1 of the end's /24.
func join(t *testing.T, end, router Device, addr netip.Addr) {
	t.Helper()
	subnet, _ := addr.Prefix(24)
	gateway := subnet.Addr().Next()
	up := func(d Device, a netip.Addr) (netlink.Link, error) {
		link, err := netlink.LinkByName(d.Name)
		if err != nil {
			return nil, err
		}
		return link, errors.Join(
			netlink.LinkSetIP6AddrGenMode(link, 1), // none
			netlink.LinkSetUp(link),
			netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}}))
	}
	inside(t, router.Namespace, func() error {
		far, err := netns.GetFromName(end.Namespace)
		if err != nil {
			return err
		}
		defer far.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name = router.Name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: end.Name, PeerNamespace: netlink.NsFd(far)}); err != nil {
			return err
		}
		_, err = up(router, gateway)
		return err
	})
	inside(t, end.Namespace, func() error {
		link, err := up(end, addr)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()})
	})
}

// inside runs f in a namespace and fails the test if f does.
func inside(t *testing.T, namespace string, f func() error) {
	t.Helper()
	if err := inNamespace(namespace, f); err != nil {
		t.Fatal(err)
	}
}

// listen opens a socket in a namespace, with room for all that a probe sends.
func listen(t *testing.T, namespace string, addr netip.AddrPort) (c *net.UDPConn) {
	t.Helper()
	inside(t, namespace, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		return err
	})
	t.Cleanup(func() { c.Close() })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20)
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	return c
}

var atA, atB = netip.MustParseAddrPort("198.18.1.2:7000"), netip.MustParseAddrPort("198.18.2.2:7000")

// send sends n datagrams, numbered from 0 on, as IP packets of size bytes, all at once: the link between the ends
// decides when they arrive. A guest's system calls are slow, so that one sends many.
func send(t *testing.T, c *net.UDPConn, to netip.AddrPort, n, size int) {
	t.Helper()
	all := make([]ipv4.Message, n)
	payloads := make([]byte, n*(size-headersIPv4))
	for i := range all {
		b := payloads[i*(size-headersIPv4):][:size-headersIPv4]
		binary.BigEndian.PutUint32(b, uint32(i))
		all[i] = ipv4.Message{Buffers: [][]byte{b}, Addr: net.UDPAddrFromAddrPort(to)}
	}
	for packets := ipv4.NewPacketConn(c); len(all) > 0; {
		sent, err := packets.WriteBatch(all[:min(len(all), 64)], 0)
		if err != nil {
			t.Fatal(err)
		}
		all = all[sent:]
	}
}

// An arrival is a datagram at the far end.
type arrival struct {
	number int
	at     time.Time // when the kernel took it
	size   int       // as an IP packet, in bytes
	tos    int       // of the IP header, if the socket asks for it
}

// receive returns the datagrams that have arrived and the ones that arrive within quiet of the one before.
func receive(t *testing.T, c *net.UDPConn, quiet time.Duration) (all []arrival) {
	t.Helper()
	batch := make([]ipv4.Message, 64)
	for i := range batch {
		batch[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 2048)}, OOB: make([]byte, 128)}
	}
	for packets := ipv4.NewPacketConn(c); ; {
		c.SetReadDeadline(time.Now().Add(quiet))
		n, err := packets.ReadBatch(batch, 0)
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch[:n] {
			one := arrival{number: int(binary.BigEndian.Uint32(m.Buffers[0])), size: m.N + headersIPv4}
			one.read(t, m.OOB[:m.NN])
			all = append(all, one)
		}
	}
}

// read takes over the kernel's messages beside the datagram.
func (a *arrival) read(t *testing.T, oob []byte) {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS:
			a.at = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TOS:
			a.tos = int(m.Data[0])
		}
	}
}

// setOption sets an option of a socket at the level of IP.
func setOption(t *testing.T, c *net.UDPConn, option, value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, option, value) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// roundTrip returns the time that a small packet takes to b, and another one back: from before it is sent until the far
// kernel has it. It sends again when one is lost.
func (w *bench) roundTrip(t *testing.T) time.Duration {
	t.Helper()
	there := oneWay(t, w.from, w.to, atB)
	return there + oneWay(t, w.to, w.from, atA)
}

// oneWay tells its packets apart by the time in them: one that came late is not taken for the next.
func oneWay(t *testing.T, from, to *net.UDPConn, addr netip.AddrPort) time.Duration {
	t.Helper()
	b, oob := make([]byte, 2048), make([]byte, 128)
	for range 50 {
		begin := time.Now()
		packet := binary.BigEndian.AppendUint64(make([]byte, 0, 36), uint64(begin.UnixNano()))
		if _, err := from.WriteToUDPAddrPort(packet[:cap(packet)], addr); err != nil {
			t.Fatal(err)
		}
		to.SetReadDeadline(begin.Add(500 * time.Millisecond))
		for {
			n, m, _, _, err := to.ReadMsgUDPAddrPort(b, oob)
			if err != nil {
				break
			}
			if bytes.Equal(b[:n], packet[:cap(packet)]) {
				var a arrival
				a.read(t, oob[:m])
				return a.at.Sub(begin.Round(0))
			}
		}
	}
	t.Fatal("50 packets in a row were lost")
	return 0
}

// roundTrips returns n of them, shortest first.
func (w *bench) roundTrips(t *testing.T, n int) []time.Duration {
	t.Helper()
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = w.roundTrip(t)
	}
	slices.Sort(all)
	return all
}

// rate sends n full packets from a to b at once, which the bottleneck's queue has to hold, and returns the rate at
// which they arrive, in bytes per second. The first fifth is left out: a token bucket lets some of it pass at once.
func (w *bench) rate(t *testing.T, n int) float64 {
	t.Helper()
	send(t, w.from, atB, n, fullPacket)
	all := receive(t, w.to, 500*time.Millisecond)
	all = all[len(all)/5:]
	if len(all) < n/2 {
		t.Fatalf("%d packets of %d came: too few to say", len(all), n)
	}
	came := 0
	for _, a := range all[1:] {
		came += a.size
	}
	return float64(came) / all[len(all)-1].at.Sub(all[0].at).Seconds()
}

// losses sends n packets from a to b and returns the numbers of the ones that do not arrive.
func (w *bench) losses(t *testing.T, n int) (lost []int) {
	t.Helper()
	send(t, w.from, atB, n, 200)
	came := make([]bool, n)
	for _, a := range receive(t, w.to, 300*time.Millisecond) {
		came[a.number] = true
	}
	for i, ok := range came {
		if !ok {
			lost = append(lost, i)
		}
	}
	return lost
}

// binomial99 returns the least and the most successes that n trials of probability p have in 99 of 100 experiments: the
// numbers left out on either side have a probability of at most 0.005.
func binomial99(n int, p float64) (minimum, maximum int) {
	if p <= 0 || p >= 1 {
		return int(p) * n, int(p) * n
	}
	logFactorial := func(k int) float64 { v, _ := math.Lgamma(float64(k + 1)); return v }
	below := 0.0
	minimum, maximum = -1, n
	for k := 0; k <= n; k++ {
		below += math.Exp(logFactorial(n) - logFactorial(k) - logFactorial(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		if minimum < 0 && below > 0.005 {
			minimum = k
		}
		if below >= 0.995 {
			maximum = k
			break
		}
	}
	return minimum, maximum
}
