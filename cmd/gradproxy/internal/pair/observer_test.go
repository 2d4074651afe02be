package pair

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/paramserver"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A seen is some bytes that an observer of the network saw at once.
type seen struct {
	at    time.Time
	there bool // from the near site, where the worker is, to the far one
	n     int
}

// An observer passes on the bytes between two proxies, and notes their times and numbers.
type observer struct {
	mu  sync.Mutex
	all []seen
}

func (o *observer) note(there bool, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, seen{time.Now(), there, n})
}

// since returns the bytes since the last call.
func (o *observer) since() []seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// between returns a function for Config.Between.
func (o *observer) between(t testing.TB, carrier string) func(netip.AddrPort) (netip.AddrPort, error) {
	return func(target netip.AddrPort) (netip.AddrPort, error) {
		if carrier == tunnel.CarrierDTLS {
			return o.datagrams(t, target)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return netip.AddrPort{}, err
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				near, err := ln.Accept()
				if err != nil {
					return
				}
				far, err := net.Dial("tcp", target.String())
				if err != nil {
					near.Close()
					continue
				}
				go o.pass(far, near, true)
				go o.pass(near, far, false)
			}
		}()
		return ln.Addr().(*net.TCPAddr).AddrPort(), nil
	}
}

func (o *observer) pass(to, from net.Conn, there bool) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		o.note(there, n)
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// datagrams passes on datagrams, each source by a socket of its own.
func (o *observer) datagrams(t testing.TB, target netip.AddrPort) (netip.AddrPort, error) {
	near, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return netip.AddrPort{}, err
	}
	t.Cleanup(func() { near.Close() })
	go func() {
		sources := map[netip.AddrPort]*net.UDPConn{}
		defer func() {
			for _, c := range sources {
				c.Close()
			}
		}()
		b := make([]byte, 64<<10)
		for {
			n, source, err := near.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			far := sources[source]
			if far == nil {
				if far, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target)); err != nil {
					return
				}
				sources[source] = far
				go func() {
					b := make([]byte, 64<<10)
					for {
						n, err := far.Read(b)
						if err != nil {
							return
						}
						o.note(false, n)
						near.WriteToUDPAddrPort(b[:n], source)
					}
				}()
			}
			o.note(true, n)
			far.Write(b[:n])
		}
	}()
	return near.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// A watched job trains a classifier of digits with one worker and one server of ps-lite, through a pair of proxies.
type watched struct {
	hidden []int // widths
	batch  int
	steps  int
	pause  time.Duration // after each step, in which a real job would compute
	seed   uint64
}

// A watching has the observer's view of each step, and the truth.
type watching struct {
	bytes [][2]float64 // of each step, there and back, as the observer sees them
	loss  []float64    // of each step
	times []time.Time  // at which bytes crossed
}

// watch runs the job and returns the observer's view. A step's bytes lie between two pauses, which are silence to an
// observer.
func (w watched) watch(t testing.TB, p *Pair, o *observer) (all watching) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ways := [2]map[string]string{{}, {}} // how the far nodes reach the near one, and the other way about
	var listeners []net.Listener
	const scheduler, server, worker = 0, 1, 2
	for node := range 3 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		listeners = append(listeners, l)
		cross, way := p.Forward, ways[1]
		if node == worker {
			cross, way = p.Backward, ways[0]
		}
		across, err := cross(l.Addr().(*net.TCPAddr).AddrPort())
		if err != nil {
			t.Fatal(err)
		}
		way[l.Addr().String()] = across.String()
	}
	var traffic zmtp.Counter
	config := func(node int) paramserver.Config {
		way := ways[0]
		if node == worker {
			way = ways[1]
		}
		return paramserver.Config{Config: pslitesim.Config{Workers: 1, Servers: 1, Traffic: &traffic,
			Scheduler: listeners[scheduler].Addr().String(), Addr: listeners[node].Addr().String(), Listener: listeners[node],
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, cmp.Or(way[addr], addr))
			}}}
	}
	failed := make(chan error, 3)
	go func() { failed <- paramserver.RunScheduler(ctx, config(scheduler)) }()
	go func() { failed <- paramserver.RunServer(ctx, config(server)) }()
	go func() {
		failed <- func() error {
			node, err := paramserver.NewWorker(ctx, config(worker))
			if err != nil {
				return err
			}
			defer node.Close()
			data, _ := digits.Load()
			batches := train.Batches{Images: data.Len(), Size: w.batch, Ranks: 1, Seed: w.seed}
			err = node.Train(paramserver.Training{
				Model: train.New(w.seed, slices.Concat([]int{digits.Pixels}, w.hidden, []int{digits.Classes})...), Steps: w.steps,
				Optimizer: paramserver.SGD{Rate: 0.03, Momentum: 0.9},
				Next: func() (images []float32, labels []uint8) {
					for _, i := range batches.Next() {
						images = data.AppendMoved(images, i, 0, 0)
						labels = append(labels, data.Labels[i])
					}
					return images, labels
				},
				Report: func(s paramserver.Step) error {
					time.Sleep(w.pause)
					var sum [2]float64
					for _, s := range o.since() {
						all.times = append(all.times, s.at)
						if s.there {
							sum[0] += float64(s.n)
						} else {
							sum[1] += float64(s.n)
						}
					}
					all.bytes, all.loss = append(all.bytes, sum), append(all.loss, s.Loss)
					return nil
				},
			})
			if err != nil {
				return err
			}
			return node.Finish()
		}()
	}()
	for range 3 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// settled returns the bytes of a step in the middle of the job: the median of each direction, without the first steps.
func (w watching) settled() (step [2]float64) {
	for i := range step {
		var list []float64
		for _, s := range w.bytes[len(w.bytes)/4:] {
			list = append(list, s[i])
		}
		step[i] = median(list)
	}
	return step
}

// bursts returns how many silences of at least so long lie between the bytes: as many as steps, if the observer is
// right.
func (w watching) bursts(silence time.Duration) (n int) {
	for i := range w.times[1:] {
		if w.times[i+1].Sub(w.times[i]) >= silence {
			n++
		}
	}
	return n
}

// models draws classifiers of two hidden layers.
func models(n int) (all [][]int) {
	r := rand.New(rand.NewPCG(1, 1))
	for range n {
		all = append(all, []int{48 + r.IntN(80), 24 + r.IntN(40)})
	}
	return all
}

// guessed has an observer that has seen each of some models train once tell which of them it sees train anew, from the
// bytes of a step. It returns the share that the observer names rightly, and the mean of bytes of a step.
func guessed(t testing.TB, p *Pair, o *observer, models [][]int, steps int) (share, bytes float64) {
	known := make([][2]float64, len(models))
	for round := range 2 {
		for i, m := range models {
			now := watched{hidden: m, batch: 16, steps: steps, pause: 15 * time.Millisecond, seed: uint64(10*round + i)}.watch(t, p, o).settled()
			bytes += (now[0] + now[1]) / float64(2*len(models))
			if round == 0 {
				known[i] = now
				continue
			}
			// Of equally good guesses one is drawn.
			best, ties, right := math.Inf(1), 0, false
			for k, v := range known {
				switch d := math.Hypot(math.Log(now[0]/v[0]), math.Log(now[1]/v[1])); {
				case d < best:
					best, ties, right = d, 1, k == i
				case d == best:
					ties, right = ties+1, right || k == i
				}
			}
			if right {
				share += 1 / float64(ties) / float64(len(models))
			}
		}
	}
	return share, bytes
}

// rank returns the correlation of the ranks of two lists (Spearman's).
func rank(a, b []float64) float64 {
	ranks := func(x []float64) []float64 {
		sorted := slices.Sorted(slices.Values(x))
		r := make([]float64, len(x))
		for i, v := range x {
			first, _ := slices.BinarySearch(sorted, v)
			after, _ := slices.BinarySearch(sorted, math.Nextafter(v, math.Inf(1)))
			r[i] = float64(first+after-1) / 2
		}
		return r
	}
	a, b = ranks(a), ranks(b)
	mean := float64(len(a)-1) / 2
	var ab, aa, bb float64
	for i := range a {
		ab += (a[i] - mean) * (b[i] - mean)
		aa += (a[i] - mean) * (a[i] - mean)
		bb += (b[i] - mean) * (b[i] - mean)
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// observed starts a pair with an observer between.
func observed(t testing.TB, carrier, codec string, pad int) (*Pair, *observer) {
	t.Helper()
	o := &observer{}
	p, err := Start(t.Context(), Config{Between: o.between(t, carrier), Carrier: carrier, Pad: pad, Rules: []policy.Rule{
		{Roles: []tensor.Role{tensor.Gradient}, Codec: codec}, {Roles: []tensor.Role{tensor.State}, Codec: codec}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, o
}

// An observer that knows some models tells which one trains, from nothing but sizes on the tunnel; padding
// leaves it little more than chance. Chance is an eighth.
func TestPaddingHidesTheModel(t *testing.T) {
	require.Long(t) // it trains 64 times
	for _, carrier := range []string{tunnel.CarrierTLS, tunnel.CarrierDTLS} {
		t.Run(carrier, func(t *testing.T) {
			m := models(8)
			p, o := observed(t, carrier, "lossless", 0)
			plain, bytes := guessed(t, p, o, m, 8)
			p, o = observed(t, carrier, "lossless", 64<<10)
			padded, more := guessed(t, p, o, m, 8)
			t.Logf("without padding %.2f are named rightly, at %.0f bytes a step; padded to 64 KiB %.2f, at %.0f", plain, bytes, padded, more)
			if plain < 0.6 {
				t.Errorf("without padding only %.2f of the models are named: the observer is no observer", plain)
			}
			if padded > plain/1.5 {
				t.Errorf("padding lets the observer name %.2f of the models, where it named %.2f", padded, plain)
			}
		})
	}
}

// BenchmarkObserver measures how much an observer of the tunnel learns of a training, and the cost of padding. Metrics:
//
//	named         share of 16 models, 3 layers each, that it names rightly, having seen each train once; chance is 0.0625
//	phase         correlation of the ranks of a step's bytes and of its loss, over 200 steps: 0: it learns nothing of how far the training is
//	bursts/step   that silences let it count: 1: it knows the time of a step
//	bytes/step    that cross the tunnel, both ways
//
//	go test ./cmd/gradproxy/internal/pair -run '^$' -bench Observer -benchtime 1x
func BenchmarkObserver(b *testing.B) {
	for _, carrier := range []string{tunnel.CarrierTLS, tunnel.CarrierDTLS} {
		for _, codec := range []string{"lossless", "3lc"} {
			for _, pad := range []int{0, 4 << 10, 16 << 10, 64 << 10} {
				b.Run(fmt.Sprintf("%s/%s/pad=%d", carrier, codec, pad), func(b *testing.B) {
					for b.Loop() {
						p, o := observed(b, carrier, codec, pad)
						share, bytes := guessed(b, p, o, models(16), 12)
						long := watched{hidden: []int{64, 32}, batch: 16, steps: 200, pause: 15 * time.Millisecond, seed: 5}
						phase := long.watch(b, p, o)
						var sums, losses []float64
						for i := 10; i < len(phase.bytes); i++ { // the first values travel whole
							sums, losses = append(sums, phase.bytes[i][0]+phase.bytes[i][1]), append(losses, phase.loss[i])
						}
						b.ReportMetric(share, "named")
						b.ReportMetric(rank(sums, losses), "phase")
						b.ReportMetric(bytes, "bytes/step")
						b.ReportMetric(float64(phase.bursts(long.pause/2))/float64(long.steps), "bursts/step")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
