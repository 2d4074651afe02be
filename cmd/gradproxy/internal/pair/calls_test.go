package pair

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/proxy"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A talk is a recorded connection: runs of bytes of one side, in the order in which they passed.
type talk struct{ runs []run }

type run struct {
	from  parser.Side
	bytes []byte
}

func (x *talk) Data(from parser.Side, b []byte) {
	if n := len(x.runs); n > 0 && x.runs[n-1].from == from {
		x.runs[n-1].bytes = append(x.runs[n-1].bytes, b...)
		return
	}
	x.runs = append(x.runs, run{from, bytes.Clone(b)})
}

func (*talk) Gap(parser.Side) {}
func (*talk) Close(bool)      {}

// talksOf returns the connections of a capture.
func talksOf(t *testing.T, name string) (talks []*talk) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = capture.Read(z, func(capture.Conn) capture.Sink {
			talks = append(talks, &talk{})
			return talks[len(talks)-1]
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return talks
}

// maxTurns bounds the calls of a capture that are played.
const maxTurns = 400

// waits cuts each run of a connection of HTTP/2 that has several frames of DATA, after the one that ends next to the
// middle of the run, and returns how many runs it has cut. Where flow control has it so, a sender waits there until its
// peer has what was sent.
func (x *talk) waits() (cut int) {
	const preface, header, data = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 9, 0
	if len(x.runs) == 0 || !bytes.HasPrefix(x.runs[0].bytes, []byte(preface)) {
		return 0
	}
	var ends [2][]int // of frames of DATA, in the bytes of a side
	for side := range ends {
		var all []byte
		for _, r := range x.runs {
			if int(r.from) == side {
				all = append(all, r.bytes...)
			}
		}
		at := 0
		if side == int(parser.Client) {
			at = len(preface)
		}
		for at+header <= len(all) {
			h := all[at:]
			at += header + (int(h[0])<<16 | int(h[1])<<8 | int(h[2]))
			if h[3] == data {
				ends[side] = append(ends[side], at)
			}
		}
	}
	var runs []run
	var from [2]int // where in the bytes of a side its next run begins
	for _, r := range x.runs {
		begin := from[r.from]
		end := begin + len(r.bytes)
		from[r.from] = end
		var within []int
		for _, at := range ends[r.from] {
			if at > begin && at <= end {
				within = append(within, at)
			}
		}
		if len(within) > 1 {
			middle := within[0]
			for _, at := range within[:len(within)-1] {
				if at <= (begin+end)/2 {
					middle = at
				}
			}
			runs, r.bytes = append(runs, run{r.from, r.bytes[:middle-begin]}), r.bytes[middle-begin:]
			cut++
		}
		runs = append(runs, r)
	}
	x.runs = runs
	return cut
}

// play has talks take place between addr and ln, one after the other, each run as soon as the one before it has arrived
// whole: so no side is ever waited for. It returns how long each turn took, from the client's first byte to the last
// byte of the server before the client goes on.
func play(t *testing.T, addr netip.AddrPort, ln net.Listener, talks []*talk) (turns []time.Duration) {
	t.Helper()
	for _, x := range talks {
		if len(turns) >= maxTurns {
			break
		}
		client, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends := [2]net.Conn{parser.Client: client, parser.Server: server}
		var begun time.Time
		for i, r := range x.runs {
			if r.from == parser.Client && begun.IsZero() {
				begun = time.Now()
			}
			go ends[r.from].Write(r.bytes)
			to := ends[1-r.from]
			to.SetReadDeadline(time.Now().Add(time.Minute))
			got := make([]byte, len(r.bytes))
			if n, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, r.bytes) {
				t.Fatalf("%d bytes arrived of %d, or others; %v", n, len(got), err)
			}
			last := i+1 == len(x.runs) || x.runs[i+1].from == parser.Client
			if r.from == parser.Server && last && !begun.IsZero() {
				turns = append(turns, time.Since(begun))
				begun = time.Time{}
				if len(turns) == maxTurns {
					break
				}
			}
		}
		client.Close()
		server.Close()
	}
	return turns
}

// slower is how much longer than directly a turn may take through the proxies: as long as a block waits for its rest at
// most. On processors that others use as well it is also as long as two more programs may wait for their turn.
const slower = 20 * time.Millisecond

// No call of a recorded job takes longer than directly by more than a block may wait for its rest. Both ways lead over
// a link of 100 Mbit/s and 4 ms, all calls are answered at once, and of each call the shortest of some runs counts,
// each through new proxies, which hold no values yet.
func TestCallsTakeAsLongAsDirectly(t *testing.T) {
	forCaptures(t, []string{"flower-*.pcap.gz", "nvflare-*.pcap.gz", "tf-*.pcap.gz"}, func(t *testing.T, talks []*talk) { wantAsLong(t, talks, slower) })
}

// A sender that waits amid a request or an answer until its peer has what was sent, as flow control may have it, is
// held up by the stall timer, once in each of both, and by little else.
func TestSendersThatWaitAreHeldUpByTheStallTimerAlone(t *testing.T) {
	forCaptures(t, []string{"tf-ps-*.pcap.gz"}, func(t *testing.T, talks []*talk) {
		cut := 0
		for _, x := range talks {
			cut += x.waits()
		}
		if cut == 0 {
			t.Fatal("no sender can wait")
		}
		wantAsLong(t, talks, slower)
	})
}

// forCaptures calls f with the connections of each capture.
func forCaptures(t *testing.T, patterns []string, f func(t *testing.T, talks []*talk)) {
	for _, pattern := range patterns {
		for _, name := range require.Captures(t, pattern) {
			t.Run(filepath.Base(name), func(t *testing.T) {
				require.Long(t)
				f(t, talksOf(t, name))
			})
		}
	}
}

// wantAsLong checks how much longer turns take through the proxies than directly.
func wantAsLong(t *testing.T, talks []*talk, slower time.Duration) {
	t.Helper()
	const runs = 3
	one := wansim.Link{Rate: 100e6 / 8, Delay: 2 * time.Millisecond, Queue: wansim.DefaultQueue(100e6/8, 4*time.Millisecond)}
	var shortest [2][]time.Duration // directly, and through the proxies
	for range runs {
		for way := range shortest {
			for i, took := range overLink(t, one, way == 1, talks) {
				if i == len(shortest[way]) {
					shortest[way] = append(shortest[way], took)
				}
				shortest[way][i] = min(shortest[way][i], took)
			}
		}
	}
	var more []time.Duration
	for i, took := range shortest[1] {
		more = append(more, took-shortest[0][i])
	}
	slices.Sort(more)
	at := func(share float64) time.Duration {
		return more[int(share*float64(len(more)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("%d turns: through the proxies they take longer by %v (median), %v (90 %%), %v (99 %%), %v at most; %v at least", len(more), at(0.5), at(0.9), at(0.99), at(1), at(0))
	if at(1) > slower {
		t.Errorf("a turn takes %v longer, want %v at most", at(1), slower)
	}
}

// overLink plays talks over a link, through new proxies or not.
func overLink(t *testing.T, one wansim.Link, proxied bool, talks []*talk) []time.Duration {
	t.Helper()
	wire, err := wansim.NewWire(one, one)
	if err != nil {
		t.Fatal(err)
	}
	between := func(target netip.AddrPort) (netip.AddrPort, error) {
		relay, err := wire.Relay("127.0.0.1:0", target.String())
		if err != nil {
			return target, err
		}
		t.Cleanup(func() { relay.Close() })
		return relay.Addr().(*net.TCPAddr).AddrPort(), nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	if !proxied {
		if addr, err = between(addr); err != nil {
			t.Fatal(err)
		}
		return play(t, addr, ln, talks)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := Start(ctx, Config{Between: between, Jobs: []proxy.Job{{Name: "job", Networks: loopback}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if addr, err = p.Forward(addr); err != nil {
		t.Fatal(err)
	}
	return play(t, addr, ln, talks)
}
