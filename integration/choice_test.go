//go:build linux

package integration

import (
	"bytes"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A flood sends all it can both ways over a connection, and fails the test if other bytes come.
type flood struct {
	t     *testing.T
	conns []*net.TCPConn
	stop  atomic.Bool
	sent  [2]atomic.Int64
	came  [2]atomic.Int64
	done  chan error
}

func newFlood(t *testing.T, client, server *net.TCPConn) *flood {
	f := &flood{t: t, conns: []*net.TCPConn{client, server}, done: make(chan error, 4)}
	piece := random(1 << 20)
	for i, c := range f.conns {
		c.SetDeadline(time.Time{})
		go func() {
			for !f.stop.Load() {
				n, err := c.Write(piece)
				f.sent[i].Add(int64(n))
				if err != nil {
					f.done <- err
					return
				}
			}
			f.done <- c.CloseWrite()
		}()
		go func() { f.done <- f.read(i, c, piece) }()
	}
	return f
}

func (f *flood) read(i int, c net.Conn, piece []byte) error {
	b, at := make([]byte, 64<<10), 0
	for {
		n, err := c.Read(b)
		for got := b[:n]; len(got) > 0; {
			k := min(len(got), len(piece)-at)
			if !bytes.Equal(got[:k], piece[at:at+k]) {
				f.t.Errorf("site %d: other bytes come after %d", i, f.came[i].Load())
				return nil
			}
			at = (at + k) % len(piece)
			got = got[k:]
		}
		f.came[i].Add(int64(n))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// bytes returns how many have come both ways.
func (f *flood) bytes() int64 { return f.came[0].Load() + f.came[1].Load() }

// finish ends the flood, and fails the test unless all that was sent comes in time.
func (f *flood) finish(within time.Duration) {
	f.t.Helper()
	f.stop.Store(true)
	late := time.After(within)
	for range 4 {
		select {
		case err := <-f.done:
			if err != nil {
				f.t.Error(err)
			}
		case <-late:
			f.t.Fatalf("the rest has not come within %v: sent %d and %d, came %d and %d", within, f.sent[0].Load(), f.sent[1].Load(), f.came[1].Load(), f.came[0].Load())
		}
	}
	for i := range f.sent {
		if sent, came := f.sent[i].Load(), f.came[1-i].Load(); sent != came {
			f.t.Errorf("site %d has sent %d bytes, of which %d came", i, sent, came)
		}
	}
}

// abandon ends the flood, whatever is still on its way.
func (f *flood) abandon() {
	f.stop.Store(true)
	for _, c := range f.conns {
		c.SetLinger(0)
		c.Close()
	}
	for range 4 {
		<-f.done
	}
}

// chosen reports whether one of the sites has a carrier chosen for that reason; both are labels. The site that has
// dialed chooses.
func chosen(t *testing.T, ps testbed.Proxies, carrier, reason string) (is bool) {
	t.Helper()
	for _, p := range ps {
		samples, err := p.Metrics(deadline(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		is = is || testbed.Sum(samples, "gradproxy_peer_choice", `carrier="`+carrier+`"`, `reason="`+reason+`"`) > 0
	}
	return is
}

// awaitChoice waits until a carrier is chosen for that reason.
func awaitChoice(t *testing.T, ps testbed.Proxies, carrier, reason string, within time.Duration) {
	t.Helper()
	for began := time.Now(); !chosen(t, ps, carrier, reason); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("%s was not chosen within %v for the reason %q", carrier, within, reason)
		}
	}
}

// filter has a site's kernel treat packets by rules of nftables, in chains of the type filter, until the returned
// function is called.
func filter(t *testing.T, s *testbed.Site, rules string) (lift func()) {
	t.Helper()
	_, err := exec.LookPath("nft")
	require.Named(t, "tools", err == nil, "run integration/env/install.sh tools")
	nft := func(script string) {
		t.Helper()
		cmd := s.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	}
	chain := func(hook string) string {
		return "chain " + hook + " { type filter hook " + hook + " priority 0; " + rules + "; }; "
	}
	nft("table inet cut { " + chain("input") + chain("output") + "}")
	return func() { nft("delete table inet cut") }
}

// Rules for filter.
const (
	noUDP   = "udp dport 7443 drop; udp sport 7443 drop"
	noTCP   = "tcp dport 7443 reject with tcp reset; tcp sport 7443 drop"
	slowUDP = "udp dport 7443 limit rate over 50 kbytes/second burst 20 kbytes drop; udp sport 7443 limit rate over 50 kbytes/second burst 20 kbytes drop"
)

// lossy is a link whose losses make TLS without BBR slow. The link's rate is low, so that datagrams can fill it on a
// busy machine too.
var lossy = wansim.Link{Rate: 10e6 / 8, Delay: 80 * time.Millisecond, Loss: 0.01, Queue: 512 << 10, Seed: 1}

// choiceWithin bounds the wait for a choice, which takes minutes on a busy machine.
const choiceWithin = 6 * time.Minute

// Over a link that loses packets, sites whose kernel has another congestion control than BBR choose datagrams for their
// bulk by themselves. Datagrams that are cut in mid-run, or become slow, give way to TLS, and return once they are no
// longer cut. The connections under way lose nothing by it, and the log, the metrics and the status say each change.
func TestCarrierIsChosen(t *testing.T) {
	t.Parallel()
	w := newWAN(t, 2, lossy)
	ps := startProxies(t, w, testbed.Config{Carrier: tunnel.CarrierAuto, Congestion: "cubic"})
	client, server := connect(t, w.Sites[0], w.Sites[1], w.Sites[1].Addr)
	f := newFlood(t, client, server)
	began := time.Now()
	time.Sleep(5 * time.Second)
	before := f.bytes()
	awaitChoice(t, ps, tunnel.CarrierDTLS, "faster", choiceWithin)
	took, at := time.Since(began), f.bytes()
	time.Sleep(5 * time.Second)
	after := f.bytes() - at
	t.Logf("chosen after %v; %.1f Mbit/s both ways together in the first 5 s, %.1f afterwards", took.Round(time.Second), float64(before)*8/5e6, float64(after)*8/5e6)
	if after < before {
		t.Errorf("%d bytes in 5 s after the choice, %d before it", after, before)
	}
	for _, c := range []struct {
		name, rules, reason string
	}{{"cut", noUDP, "blocked"}, {"slow", slowUDP, "throttled"}} {
		lift := filter(t, w.Sites[0], c.rules)
		began, at := time.Now(), f.bytes()
		awaitChoice(t, ps, tunnel.CarrierTLS, c.reason, choiceWithin)
		t.Logf("%s: TLS took over after %v, in which %.1f Mbit/s came", c.name, time.Since(began).Round(100*time.Millisecond), float64(f.bytes()-at)*8/1e6/time.Since(began).Seconds())
		said := 0
		for _, p := range ps {
			said += strings.Count(p.Log(), "reason="+c.reason)
		}
		if said == 0 {
			t.Errorf("%s: no log says so", c.name)
		}
		lift()
		if c.reason == "throttled" { // TestThrottledDatagramsReturn goes on
			f.abandon()
			break
		}
		began = time.Now()
		awaitChoice(t, ps, tunnel.CarrierDTLS, "faster", choiceWithin)
		t.Logf("%s: datagrams returned %v after they were free again", c.name, time.Since(began).Round(time.Second))
	}
}

// Datagrams that have been chosen become slow in mid-run, since the network throttles UDP and not TCP. TLS takes over,
// and a minute after that datagrams are tried again: the throttle is gone by then, and they stay. All that was sent
// both ways comes, unaltered and in order.
func TestThrottledDatagramsReturn(t *testing.T) {
	t.Parallel()
	w := newWAN(t, 2, lossy)
	ps := startProxies(t, w, testbed.Config{Carrier: tunnel.CarrierAuto, Congestion: "cubic"})
	client, server := connect(t, w.Sites[0], w.Sites[1], w.Sites[1].Addr)
	f := newFlood(t, client, server)
	rate := func(d time.Duration) float64 {
		at, began := f.bytes(), time.Now()
		time.Sleep(d)
		return float64(f.bytes()-at) * 8 / 1e6 / time.Since(began).Seconds()
	}
	began := time.Now()
	before := rate(5 * time.Second)
	awaitChoice(t, ps, tunnel.CarrierDTLS, "faster", choiceWithin)
	first := time.Since(began)
	fast := rate(65 * time.Second) // datagrams that were faster for a minute are tried again after a minute
	if !chosen(t, ps, tunnel.CarrierDTLS, "faster") {
		t.Fatal("datagrams were not kept on a path that treats them well")
	}
	lift := filter(t, w.Sites[0], slowUDP)
	began = time.Now()
	awaitChoice(t, ps, tunnel.CarrierTLS, "throttled", choiceWithin)
	gone := time.Since(began)
	slow := rate(10 * time.Second)
	if slow == 0 {
		t.Error("TLS has carried nothing in the 10 s after datagrams had to go")
	}
	lift()
	began = time.Now()
	awaitChoice(t, ps, tunnel.CarrierDTLS, "faster", choiceWithin)
	back := time.Since(began)
	again := rate(10 * time.Second)
	t.Logf("TLS carried %.1f Mbit/s both ways, datagrams were chosen after %v and carried %.1f, TLS took over after %v and carried %.1f, datagrams were back %v after they were free again and carried %.1f",
		before, first.Round(100*time.Millisecond), fast, gone.Round(100*time.Millisecond), slow, back.Round(100*time.Millisecond), again)
	if again < fast/2 {
		t.Errorf("%.1f Mbit/s over datagrams after the return, %.1f before the throttle", again, fast)
	}
	f.finish(2 * time.Minute)
}
