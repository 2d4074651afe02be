package tc

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A bench is two ends and a router between them, each in a namespace of its own, with one UDP socket at each end.
type bench struct {
	a, b     string // the ends' namespaces
	ab, ba   Hop
	from, to *net.UDPConn // from a's socket to b's; to is not connected
}

// What the probes send: payloads that make IPv4 packets of these lengths in bytes.
const (
	headersIPv4 = 28
	fullPacket  = 1500
)

func newBench(t *testing.T) *bench {
	t.Helper()
	w := &bench{a: newNamespace(t, "a"), b: newNamespace(t, "b")}
	router := newNamespace(t, "r")
	names := strings.NewReplacer("ROUTER", router, "-n A", "-n "+w.a, "netns A", "netns "+w.a, "-n B", "-n "+w.b, "netns B", "netns "+w.b)
	for _, line := range []string{
		"ip -n ROUTER link add a0 type veth peer name wan0 netns A",
		"ip -n ROUTER link add b0 type veth peer name wan0 netns B",
		"ip -n A link set wan0 addrgenmode none up",
		"ip -n B link set wan0 addrgenmode none up",
		"ip -n ROUTER link set a0 addrgenmode none up",
		"ip -n ROUTER link set b0 addrgenmode none up",
		"ip -n ROUTER addr add 198.18.1.1/24 dev a0",
		"ip -n ROUTER addr add 198.18.2.1/24 dev b0",
		"ip -n A addr add 198.18.1.2/24 dev wan0",
		"ip -n B addr add 198.18.2.2/24 dev wan0",
		"ip -n A route add default via 198.18.1.1",
		"ip -n B route add default via 198.18.2.1",
		"ip netns exec ROUTER sysctl -q -w net.ipv4.ip_forward=1",
	} {
		run(t, names.Replace(line))
	}
	w.ab = Hop{Sender: Device{w.a, "wan0"}, In: Device{router, "a0"}, Out: Device{router, "b0"}}
	w.ba = Hop{Sender: Device{w.b, "wan0"}, In: Device{router, "b0"}, Out: Device{router, "a0"}}
	w.to = listen(t, w.b, "198.18.2.2:7000")
	w.from = listen(t, w.a, "198.18.1.2:7000")
	w.ping(t) // so that everyone knows the neighbours' addresses
	return w
}

// listen opens a socket in a namespace, with room for all that a probe sends.
func listen(t *testing.T, namespace, addr string) (c *net.UDPConn) {
	t.Helper()
	err := inNamespace(namespace, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
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

// send sends datagram number i, as an IP packet of size bytes, from a to b or back.
func send(t *testing.T, c *net.UDPConn, to netip.AddrPort, i, size int) {
	t.Helper()
	b := make([]byte, size-headersIPv4)
	binary.BigEndian.PutUint32(b, uint32(i))
	if _, err := c.WriteToUDPAddrPort(b, to); err != nil {
		t.Fatal(err)
	}
}

// An arrival is a datagram at the far end: its number, when the kernel took it, the ECN bits, and its length as an IP packet.
type arrival struct {
	number int
	at     time.Time
	size   int
}

// receive returns what arrives within quiet of the one before.
func receive(t *testing.T, c *net.UDPConn, quiet time.Duration) (all []arrival) {
	t.Helper()
	b, oob := make([]byte, 2048), make([]byte, 128)
	for {
		c.SetReadDeadline(time.Now().Add(quiet))
		n, m, _, _, err := c.ReadMsgUDPAddrPort(b, oob)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, arrival{int(binary.BigEndian.Uint32(b)), stamp(t, oob[:m]), n + headersIPv4})
	}
}

// stamp returns the kernel's time of arrival (SO_TIMESTAMPNS).
func stamp(t *testing.T, oob []byte) time.Time {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	t.Fatal("no timestamp")
	return time.Time{}
}

// ping returns the time that one small packet takes to b and back. It sends again when one is lost.
func (w *bench) ping(t *testing.T) time.Duration {
	t.Helper()
	b := make([]byte, 2048)
	for try := range 50 {
		begin := time.Now()
		send(t, w.from, atB, try, 64)
		for _, c := range []*net.UDPConn{w.to, w.from} {
			c.SetReadDeadline(begin.Add(2 * time.Second))
			n, _, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				break
			}
			if c == w.from {
				return time.Since(begin)
			}
			if _, err := w.to.WriteToUDPAddrPort(b[:n], atA); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("50 packets in a row were lost")
	return 0
}

// rtts returns the round trips of n pings, shortest first.
func (w *bench) rtts(t *testing.T, n int) []time.Duration {
	t.Helper()
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = w.ping(t)
	}
	slices.Sort(all)
	return all
}

// rate sends full packets from a to b, half as fast again as asked (bytes per second), for that long, and returns the rate
// at which they arrive, of bytes per second from the second half of those that came.
func (w *bench) rate(t *testing.T, asked float64, span time.Duration) float64 {
	t.Helper()
	result := make(chan []arrival)
	go func() { result <- receive(t, w.to, 500*time.Millisecond) }()
	begin := time.Now()
	for i := 0; ; i++ {
		elapsed := time.Since(begin)
		if elapsed > span {
			break
		}
		if ahead := float64(i)*fullPacket/(1.5*asked) - elapsed.Seconds(); ahead > 0 {
			time.Sleep(time.Duration(ahead * 1e9))
		}
		send(t, w.from, atB, i, fullPacket)
	}
	all := <-result
	all = all[len(all)/2:]
	if len(all) < 50 {
		t.Fatalf("%d packets came: too few to say", len(all))
	}
	bytes := 0
	for _, a := range all[1:] {
		bytes += a.size
	}
	return float64(bytes) / all[len(all)-1].at.Sub(all[0].at).Seconds()
}

// losses sends n packets from a to b, not faster than pace packets per second, and returns the numbers of those that do not
// arrive.
func (w *bench) losses(t *testing.T, n int, pace float64) (lost []int) {
	t.Helper()
	result := make(chan []arrival)
	go func() { result <- receive(t, w.to, time.Second) }()
	begin := time.Now()
	for i := range n {
		if ahead := float64(i)/pace - time.Since(begin).Seconds(); ahead > 0 {
			time.Sleep(time.Duration(ahead * 1e9))
		}
		send(t, w.from, atB, i, 200)
	}
	came := make([]bool, n)
	for _, a := range <-result {
		came[a.number] = true
	}
	for i, ok := range came {
		if !ok {
			lost = append(lost, i)
		}
	}
	return lost
}

// binomial99 returns the least and the most successes that n trials of probability p have in 99 of 100 experiments: what is
// left out on either side has a probability of at most 0.005.
func binomial99(n int, p float64) (least, most int) {
	if p <= 0 || p >= 1 {
		return int(p) * n, int(p) * n
	}
	logFactorial := func(k int) float64 { v, _ := math.Lgamma(float64(k + 1)); return v }
	below := 0.0
	least, most = -1, n
	for k := 0; k <= n; k++ {
		below += math.Exp(logFactorial(n) - logFactorial(k) - logFactorial(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		if least < 0 && below > 0.005 {
			least = k
		}
		if below >= 0.995 {
			most = k
			break
		}
	}
	return least, most
}
