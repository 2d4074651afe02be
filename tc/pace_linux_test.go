package tc

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A pacer is the program pace without a device. The kernel's clock goes on, and can be put forward.
type pacer struct {
	t       *testing.T
	loaded  *ebpf.Collection
	forward uint64 // nanoseconds by which the clock was put forward
}

func newPacer(t *testing.T) *pacer {
	t.Helper()
	require.Root(t)
	spec, err := loadShape()
	if err != nil {
		t.Fatal(err)
	}
	delete(spec.Programs, shapeProgLoss)
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	return &pacer{t: t, loaded: loaded}
}

// set asks for a link of that many bytes per second with a queue of bytes.
func (p *pacer) set(rate, queue uint64) {
	p.t.Helper()
	if err := p.loaded.Maps[shapeMapConfig].Put(uint32(0), shapeSettings{Rate: rate, Queue: queue}); err != nil {
		p.t.Fatal(err)
	}
}

// now returns the time by the programs' clock, in nanoseconds.
func (p *pacer) now() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		p.t.Fatal(err)
	}
	return uint64(now.Nano()) + p.forward
}

// remembered returns the program's memory.
func (p *pacer) remembered() (s shapeMemory) {
	p.t.Helper()
	if err := p.loaded.Maps[shapeMapState].Lookup(uint32(0), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// rate returns the one at which the packet before is sent.
func (p *pacer) rate() uint64 {
	p.t.Helper()
	return p.remembered().Rate
}

// wait puts the clock forward: all that the program remembers is so much longer ago.
func (p *pacer) wait(d uint64) {
	p.t.Helper()
	s := p.remembered()
	times := []*uint64{&s.Free, &s.Last}
	for i := range s.Steps {
		times = append(times, &s.Steps[i].Until)
	}
	for _, at := range times {
		*at -= min(*at, d)
	}
	if err := p.loaded.Maps[shapeMapState].Put(uint32(0), s); err != nil {
		p.t.Fatal(err)
	}
	p.forward += d
}

// offer offers a packet of size bytes and returns when it leaves; ok is false if the queue was full.
func (p *pacer) offer(size int) (at uint64, ok bool) {
	p.t.Helper()
	const length, tstamp = 192, 152 // of and in struct __sk_buff of linux/bpf.h
	context := make([]byte, length)
	verdict, err := p.loaded.Programs[shapeProgPace].Run(&ebpf.RunOptions{
		Data: packet(0x0800, 17, 20, 0, size), Context: make([]byte, length), ContextOut: context})
	if err != nil {
		p.t.Fatal(err)
	}
	const pass, shot = -1, 2
	switch int32(verdict) {
	case pass:
		return binary.NativeEndian.Uint64(context[tstamp:]) + p.forward, true
	case shot:
		return 0, false
	}
	p.t.Fatalf("verdict %d", int32(verdict))
	return 0, false
}

// fill offers packets of 1000 bytes until the queue is full and returns when they leave.
func (p *pacer) fill() (at []uint64) {
	p.t.Helper()
	for {
		leaves, ok := p.offer(1000)
		if !ok {
			return at
		}
		if at = append(at, leaves); len(at) > 1000 {
			p.t.Fatal("the queue has no end")
		}
	}
}

// A queue that is half full when the rate changes has room for the other half, be the new rate higher or lower. Packets
// that it holds leave as they were told to, the rest behind them at the new rate. (At these rates nothing leaves during
// the test.)
func TestQueueHoldsItsBytesAcrossRates(t *testing.T) {
	const queue, half = 100_000, 50 // bytes; packets
	for name, rates := range map[string][2]uint64{
		"raised":          {1, 1_000_000_000},
		"raised a little": {1, 3},
		"lowered":         {10, 1},
		"lowered by far":  {1000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPacer(t)
			p.set(rates[0], queue)
			last := uint64(0)
			for range half {
				at, ok := p.offer(1000)
				if !ok {
					t.Fatal("full before half its bytes are in it")
				}
				last = at
			}
			p.set(rates[1], queue)
			rest := p.fill()
			if len(rest) != half {
				t.Fatalf("took %d packets after the change, want %d", len(rest), half)
			}
			for i, at := range rest {
				if want := last + uint64(i+1)*1000*uint64(time.Second)/rates[1]; at != want && at != want+1 { // a fraction is carried
					t.Fatalf("packet %d behind the change leaves at %d, want %d", i, at, want)
				}
			}
		})
	}
}

// From 100 kbit/s to 100 Mbit/s and back: as time passes there is room for the bytes that have left, and no more.
func TestQueueDrainsAcrossRates(t *testing.T) {
	const slow, fast, queue = 12_500, 12_500_000, 256 << 10
	p := newPacer(t)
	p.set(slow, queue)
	if n := len(p.fill()); n != queue/1000 {
		t.Fatalf("%d packets fill the queue, want %d", n, queue/1000)
	}
	p.set(fast, queue)
	p.wait(8 * uint64(time.Second)) // of the 21 that the queue takes
	if n := len(p.fill()); n < 100 {
		t.Errorf("%d packets find room when 100 have left", n)
	}
	p.set(slow, queue)
	p.wait(13 * uint64(time.Second)) // all at the low rate has left, and the packets that came at the high one soon after
	if n := len(p.fill()); n < 162 {
		t.Errorf("%d packets find room when 162 have left", n)
	}
}

// A sending is the time in which a packet is sent, and its bytes.
type sending struct{ from, until, bytes uint64 }

// holds returns the bytes of a queue that are yet to be sent at now.
func holds(queue []sending, now uint64) *big.Rat {
	sum := new(big.Rat)
	for _, s := range queue {
		if s.until <= now {
			continue
		}
		part := new(big.Rat).SetFrac(new(big.Int).SetUint64(s.until-max(now, s.from)), new(big.Int).SetUint64(s.until-s.from))
		sum.Add(sum, part.Mul(part, new(big.Rat).SetUint64(s.bytes)))
	}
	return sum
}

// The queue against a list of its packets, at rates that change all the time: it takes a packet if there is room for
// its bytes and drops it if not, and packets leave in order. The program reads the clock between two of the test's
// readings.
func TestQueueAgainstItsPackets(t *testing.T) {
	for name, run := range map[string]int{ // packets taken at one rate
		"few rates":  5,
		"many rates": 1, // more at once than the program tells apart
	} {
		t.Run(name, func(t *testing.T) {
			const queue = 30_000
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			p := newPacer(t)
			var inside []sending
			var last uint64
			var taken, dropped, atRate int
			for i := range 3000 {
				if atRate == 0 {
					atRate = run
					p.set(1<<rng.IntN(24)+rng.Uint64N(100), queue)
				}
				if rng.IntN(4) == 0 {
					p.wait(rng.Uint64N(1 << (10 + rng.IntN(26))))
				}
				if rng.IntN(50) == 0 {
					p.wait(last - min(last, p.now())) // until the queue is empty
				}
				size := 500 + rng.IntN(1000)
				before := p.now()
				at, ok := p.offer(size)
				after := p.now()
				if ok && at < last {
					t.Fatalf("packet %d leaves at %d, before the one ahead at %d", i, at, last)
				}
				largest, smallest := holds(inside, before), holds(inside, after)
				slack := new(big.Rat).SetInt64(1) // times are whole nanoseconds: less than a byte at these rates
				room := new(big.Rat).SetInt64(queue - int64(size))
				if !ok && new(big.Rat).Add(largest, slack).Cmp(room) <= 0 {
					t.Fatalf("packet %d, of %d bytes, is dropped by a queue that holds %s of %d", i, size, largest.FloatString(3), queue)
				}
				if ok && new(big.Rat).Sub(smallest, slack).Cmp(room) > 0 {
					t.Fatalf("packet %d, of %d bytes, is taken by a queue that holds %s of %d", i, size, smallest.FloatString(3), queue)
				}
				if !ok {
					dropped++
					continue
				}
				taken++
				atRate--
				inside = append(inside, sending{max(last, at-uint64(size)*uint64(time.Second)/p.rate()), at, uint64(size)})
				last = at
				for len(inside) > 0 && inside[0].until <= before {
					inside = inside[1:]
				}
			}
			if taken < 500 || dropped < 500 {
				t.Errorf("%d taken, %d dropped: the test does not press the queue", taken, dropped)
			}
		})
	}
}
