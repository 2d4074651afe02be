package wansim

import (
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

const probes = 32 // round trips that judge a link's delay

var table = flag.Bool("table", false, "measure the accuracy for all rates and delays, not only some, and print it")

// achieved is the result of a test's probes of a link.
type achieved struct {
	lowest, quartile, highest time.Duration // round trips of single small packets
	rate                      float64       // IP bytes per second that a bulk transfer receives
}

// A link keeps its settings: round trips within 0.5 ms and 1 %, besides the time by which this machine is late when it
// only waits as long, and the rate within 2 %. Other users of the processors can only lengthen a round trip, so the
// lower quartile of many is the time of the link itself. With -table -v it prints the table of all rates.
func TestTUNAccuracy(t *testing.T) {
	require.Long(t)
	cases := [][2]int64{{10, 20}, {fastest, 20}} // Mbit/s, ms
	if *table {
		cases = nil
		for _, mbps := range []int64{10, 100, 500, 1000} {
			cases = append(cases, [2]int64{mbps, 20}, [2]int64{mbps, 80})
		}
	}
	for _, c := range cases {
		mbps, rtt := c[0], time.Duration(c[1])*time.Millisecond
		t.Run(fmt.Sprintf("%dMbit,%v", mbps, rtt), func(t *testing.T) {
			l := Link{Rate: mbps * 1e6 / 8, Delay: rtt / 2}
			threeOfFive(t, func() (bool, string) {
				s := newSpan(t, l, l)
				var got achieved
				got.lowest, got.quartile, got.highest = spread(s.idleRTT(t, probes))
				got.rate = s.bulk(t, rtt)
				off, late := (got.quartile - rtt).Abs(), lateness(t, rtt)
				ok := off <= 500*time.Microsecond+rtt/100+late && math.Abs(got.rate/float64(l.Rate)-1) <= 0.02
				return ok, fmt.Sprintf("| %d | %d | %.1f (%+.2f %%) | %.2f | %.2f | %.2f | %.2f |", mbps, c[1], got.rate*8/1e6,
					(got.rate/float64(l.Rate)-1)*100, ms(got.lowest), ms(got.quartile), ms(got.highest), ms(late))
			})
		})
	}
}

// The same for streams and relays inside the process, whose round trips are within 1 ms.
func TestRelayAccuracy(t *testing.T) {
	require.Long(t)
	const rate, rtt = fastest * 1e6 / 8, 20 * time.Millisecond
	l := Link{Rate: rate, Delay: rtt / 2, Queue: 256 << 10}
	threeOfFive(t, func() (bool, string) {
		_, dial := relayed(t, l, l)
		client, server := dial()
		go io.Copy(server, server)
		_, quartile, _ := spread(pings(t, client, probes))
		late := lateness(t, rtt)
		client, server = dial()
		go pour(client)
		got := receive(t, server, 2*rtt) / segmentSize * mtu
		ok := (quartile-rtt).Abs() <= time.Millisecond+late && math.Abs(got/rate-1) <= 0.02
		return ok, fmt.Sprintf("%.1f Mbit/s, %.2f ms, the machine %.2f ms late", got*8/1e6, ms(quartile), ms(late))
	})
}

// Each packet's jitter is the one that the model draws for it.
func TestTUNJitter(t *testing.T) {
	require.Long(t)
	const delay, jitter, count = 10 * time.Millisecond, 5 * time.Millisecond, 40
	l := Link{Delay: delay, Jitter: jitter, Seed: 6}
	threeOfFive(t, func() (bool, string) {
		there, back := newPath(l, 0), newPath(l, 1)
		var late []time.Duration
		for i, took := range newSpan(t, l, l).idleRTT(t, count) {
			now := begin.Add(time.Duration(i) * time.Second)
			a, _ := there.Admit(now, 1)
			b, _ := back.Admit(now, 1)
			late = append(late, took-a.Sub(now)-b.Sub(now))
		}
		slices.Sort(late)
		machine := lateness(t, 2*delay)
		return late[0] >= 0 && late[count/4] <= 700*time.Microsecond+machine,
			fmt.Sprintf("round trips are %v to %v later than drawn, lower quartile %v, the machine %v", late[0], late[count-1], late[count/4], machine)
	})
}

// Losses of a link are as many as asked: within the binomial distribution's 99 %.
func TestTUNLossRate(t *testing.T) {
	const count, loss = 20_000, 0.02
	threeOfFive(t, func() (bool, string) {
		s := newSpan(t, Link{Loss: loss, Seed: uint64(time.Now().UnixNano())}, Link{})
		sender, receiver := udp(t, s.a, s.b, addrB4.Addr())
		for range count {
			mustWrite(t, sender, []byte{0})
		}
		for s.tun.Stats().AB.Packets < count { // the kernel hands packets over in its own time
			time.Sleep(time.Millisecond)
		}
		if err := s.tun.SetLink(Link{}, Link{}); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, sender, []byte{1}) // the last to arrive
		arrived := 0
		for mustRead(t, receiver, 1)[0] == 0 && !t.Failed() {
			arrived++
		}
		lost := float64(count - arrived)
		spread := 2.576 * math.Sqrt(count*loss*(1-loss))
		return math.Abs(lost-count*loss) <= spread, fmt.Sprintf("%.0f of %d lost, want %.0f ± %.0f", lost, count, count*loss, spread)
	})
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// idleRTT measures round trips of n small datagrams, one at a time, while nothing else is on the link.
func (s *span) idleRTT(t *testing.T, n int) []time.Duration {
	t.Helper()
	client, server := udp(t, s.a, s.b, addrB4.Addr())
	go echo(server)
	return pings(t, client, n)
}

// echo answers datagrams of a byte until the socket is closed.
func echo(server *net.UDPConn) {
	b := make([]byte, 1)
	for {
		_, from, err := server.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		server.WriteToUDPAddrPort(b, from)
	}
}

// pings measures round trips to a peer that echoes.
func pings(t *testing.T, c net.Conn, n int) (took []time.Duration) {
	t.Helper()
	for range n {
		begin := time.Now()
		mustWrite(t, c, []byte{1})
		mustRead(t, c, 1)
		took = append(took, time.Since(begin))
	}
	return took
}

// lateness returns by how much this machine is late, whatever the link: the lower quartile of round trips on its
// loopback between two waits of half of rtt, which is in whole milliseconds as the runtime counts when it has nothing
// to do.
func lateness(t *testing.T, rtt time.Duration) time.Duration {
	t.Helper()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go echo(server)
	client, err := net.Dial("udp4", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var late []time.Duration
	for range probes {
		begin := time.Now()
		time.Sleep(rtt / 2)
		mustWrite(t, client, []byte{1})
		mustRead(t, client, 1)
		time.Sleep(rtt / 2)
		late = append(late, time.Since(begin)-rtt)
	}
	_, quartile, _ := spread(late)
	return quartile
}

func spread(took []time.Duration) (lowest, quartile, highest time.Duration) {
	slices.Sort(took)
	return took[0], took[len(took)/4], took[len(took)-1]
}

// bulk returns the IP bytes per second that TCP receives on the link, which loses nothing, once it has filled it.
func (s *span) bulk(t *testing.T, rtt time.Duration) float64 {
	t.Helper()
	l := listen(t, s.b, addrB4.Addr())
	sender := dial(t, s.a, "tcp", l.Addr().String())
	raw, err := sender.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	raw.Control(func(fd uintptr) {
		// Reno doubles its window each round trip until a packet is lost; others stop earlier, or pace below the rate.
		if err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno"); err == nil {
			info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	go pour(sender)
	return receive(t, receiver, 14*rtt+200*time.Millisecond) / float64(info.Snd_mss) * mtu
}

// pour writes until the connection ends.
func pour(c net.Conn) {
	b := make([]byte, 256<<10)
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// receive returns the bytes per second that arrive in half a second after warm.
func receive(t *testing.T, c net.Conn, warm time.Duration) float64 {
	t.Helper()
	b := make([]byte, 1<<20)
	sum, start, from := 0, time.Now(), time.Time{}
	for {
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		switch {
		case now.Sub(start) < warm:
		case from.IsZero():
			from = now
		default:
			sum += n
			if took := now.Sub(from); took > 500*time.Millisecond {
				return float64(sum) / took.Seconds()
			}
		}
	}
}
