package wansim

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// begin is when the tests' packets start: any time will do, for the model reads no clock.
var begin = time.Date(2018, 2, 21, 0, 0, 0, 0, time.UTC)

func TestZeroLinkIsPerfect(t *testing.T) {
	for name, p := range map[string]*Path{"NewPath": NewPath(Link{}), "zero Path": {}} {
		now := begin
		for n := range 10_000 {
			if at, ok := p.Admit(now, n); !ok || !at.Equal(now) {
				t.Fatalf("%s: packet of %d bytes arrives at %v, %v; want at once", name, n, at.Sub(now), ok)
			}
			now = now.Add(time.Duration(n % 3))
		}
	}
}

// The last of many packets arrives when an exact link would have sent the sum of their sizes.
func TestRateIsExactOverManyPackets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []int64{1, 3, 1_250_000, 12_345_677, 125_000_000, 3_000_000_019} {
		p := NewPath(Link{Rate: rate, Delay: 40 * time.Millisecond})
		var sum int64
		var at time.Time
		for range 100_000 {
			n := rng.IntN(1501)
			sum += int64(n)
			at, _ = p.Admit(begin, n)
		}
		busy := new(big.Int).Mul(big.NewInt(sum), big.NewInt(1e9))
		busy.Div(busy, big.NewInt(rate))
		// begin.Add does not overflow here: at 1 B/s the packets take two years.
		if want := begin.Add(time.Duration(busy.Int64()) + 40*time.Millisecond); !at.Equal(want) {
			t.Errorf("%d B/s: %d bytes take until %v, want %v", rate, sum, at, want)
		}
	}
}

func TestIdleBottleneckStartsAfresh(t *testing.T) {
	p := NewPath(Link{Rate: 1_500_000}) // a packet of 1500 bytes a millisecond
	p.Admit(begin, 1500)
	later := begin.Add(time.Hour)
	if at, _ := p.Admit(later, 1500); at.Sub(later) != time.Millisecond {
		t.Errorf("a packet after an idle hour takes %v, want 1ms", at.Sub(later))
	}
}

// The queue never holds more than its bound, and turns away exactly the packets that would exceed it. The other side of
// the comparison keeps its books in exact fractions.
func TestQueueDropsTheTail(t *testing.T) {
	const rate, queue = 1_234_567, 20_000
	p := NewPath(Link{Rate: rate, Queue: queue})
	rng := rand.New(rand.NewPCG(3, 4))
	now, held := begin, new(big.Rat) // held: bytes in the bottleneck at now
	bound, ns := big.NewRat(queue, 1), big.NewRat(rate, 1e9)
	drops := 0
	for i := range 50_000 {
		n := 40 + rng.IntN(1461)
		wait := time.Duration(rng.IntN(1_200_000))
		now = now.Add(wait)
		sent := new(big.Rat).Mul(ns, big.NewRat(int64(wait), 1))
		if held.Sub(held, sent).Sign() < 0 {
			held.SetInt64(0)
		}
		with := new(big.Rat).Add(held, big.NewRat(int64(n), 1))
		if excess, _ := new(big.Rat).Sub(with, bound).Float64(); math.Abs(excess) < 0.01 {
			continue // too close to call: the model rounds to nanoseconds
		}
		_, ok := p.Admit(now, n)
		if want := with.Cmp(bound) <= 0; ok != want {
			t.Fatalf("packet %d: admitted %v with %s of %d bytes held", i, ok, with.FloatString(3), queue)
		}
		if ok {
			held = with
		} else {
			drops++
		}
	}
	if drops < 1000 {
		t.Errorf("only %d drops: the test does not press the queue", drops)
	}
}

func TestPacketBeyondTheQueuePassesAnIdleBottleneckOnly(t *testing.T) {
	p := NewPath(Link{Rate: 1000, Queue: 1500})
	if _, ok := p.Admit(begin, 64<<10); !ok {
		t.Error("an idle bottleneck refuses a packet that is larger than the queue")
	}
	if _, ok := p.Admit(begin, 1); ok {
		t.Error("a busy bottleneck takes a packet beyond its queue")
	}
}

// Losses follow the seed: the same ones again, others with another seed, as many as asked (99.99 % of a binomial
// distribution), and at the same places whatever the sizes, times, rate and jitter are.
func TestLossesFollowTheSeed(t *testing.T) {
	const packets = 100_000
	losses := func(l Link, n int, gap time.Duration) (which []int) {
		p := NewPath(l)
		for i := range packets {
			if _, ok := p.Admit(begin.Add(time.Duration(i)*gap), n); !ok {
				which = append(which, i)
			}
		}
		return which
	}
	for _, loss := range []float64{0.0001, 0.01, 0.3, 0.999} {
		a := losses(Link{Loss: loss, Seed: 7}, 1500, time.Millisecond)
		again := losses(Link{Loss: loss, Seed: 7, Rate: 1000, Delay: time.Second, Jitter: time.Second}, 40, time.Microsecond)
		other := losses(Link{Loss: loss, Seed: 8}, 1500, time.Millisecond)
		if !slices.Equal(a, again) {
			t.Errorf("loss %v: the same seed loses other packets", loss)
		}
		if slices.Equal(a, other) {
			t.Errorf("loss %v: another seed loses the same packets", loss)
		}
		want, spread := loss*packets, 3.9*math.Sqrt(packets*loss*(1-loss))
		for _, got := range [][]int{a, other} {
			if math.Abs(float64(len(got))-want) > spread+1 {
				t.Errorf("loss %v: %d of %d packets lost, want %.0f ± %.0f", loss, len(got), packets, want, spread)
			}
		}
	}
}

// With one seed the way back loses other packets than the way there.
func TestDirectionsDiffer(t *testing.T) {
	l := Link{Loss: 0.5, Seed: 1}
	there, back := newPath(l, 0), newPath(l, 1)
	same := 0
	for range 10_000 {
		_, a := there.Admit(begin, 1)
		_, b := back.Admit(begin, 1)
		if a == b {
			same++
		}
	}
	if same < 4800 || same > 5200 { // 4 standard deviations of a fair coin
		t.Errorf("%d of 10,000 packets have the same fate in both directions", same)
	}
}

// Packets that find the queue full shift nobody else's fate.
func TestLossesDoNotDependOnDrops(t *testing.T) {
	free := NewPath(Link{Loss: 0.5, Seed: 1})
	full := NewPath(Link{Loss: 0.5, Seed: 1, Rate: 1_000_000, Queue: 3000})
	drops := 0
	for i := range 10_000 {
		now := begin.Add(time.Duration(i) * time.Millisecond)
		_, want := free.Admit(now, 1500)
		_, got := full.offer(now, now, 1500)
		if got == dropped {
			drops++
		} else if (got == arrives) != want {
			t.Fatalf("packet %d: fate %d, arrives on a link without drops: %v", i, got, want)
		}
	}
	if drops == 0 {
		t.Error("no drops: the test does not press the queue")
	}
}

// A packet lost behind the bottleneck has used its time there: the packets that arrive come no faster.
func TestLostPacketsUseTheBottleneck(t *testing.T) {
	p := NewPath(Link{Rate: 1_500_000, Loss: 0.5})
	for i := range 1000 {
		if at, ok := p.Admit(begin, 1500); ok && at.Sub(begin) != time.Duration(i+1)*time.Millisecond {
			t.Fatalf("packet %d arrives after %v", i, at.Sub(begin))
		}
	}
}

func TestLossOfOneIsABlackHole(t *testing.T) {
	p := NewPath(Link{Loss: 1})
	for range 100_000 {
		if _, ok := p.Admit(begin, 1500); ok {
			t.Fatal("a packet arrives")
		}
	}
}

func TestJitterStaysInRangeAndKeepsOrder(t *testing.T) {
	const delay, jitter = 10 * time.Millisecond, 5 * time.Millisecond
	p := NewPath(Link{Delay: delay, Jitter: jitter, Seed: 5})
	var sum time.Duration
	const packets = 10_000
	for i := range packets { // so far apart that order asks for nothing
		now := begin.Add(time.Duration(i) * time.Second)
		at, _ := p.Admit(now, 1500)
		took := at.Sub(now)
		if took < delay || took >= delay+jitter {
			t.Fatalf("a packet takes %v, want [%v, %v)", took, delay, delay+jitter)
		}
		sum += took
	}
	// The mean of a uniform distribution, within five of its standard deviations, jitter/√12/√packets.
	if mean := sum / packets; (mean - delay - jitter/2).Abs() > 73*time.Microsecond {
		t.Errorf("the mean delay is %v, want 12.5ms", mean)
	}
	var last time.Time
	for i := range packets { // so close that order asks for much
		now := begin.Add(time.Duration(packets)*time.Second + time.Duration(i)*100*time.Microsecond)
		at, _ := p.Admit(now, 1500)
		if at.Before(last) || at.Sub(now) < delay || at.Sub(now) >= delay+jitter {
			t.Fatalf("packet %d arrives after %v, %v after the one before", i, at.Sub(now), at.Sub(last))
		}
		last = at
	}
}

// A link that becomes faster does not let the next packet overtake the packets that are on their way.
func TestSetLinkKeepsOrder(t *testing.T) {
	p := NewPath(Link{Delay: 100 * time.Millisecond})
	first, _ := p.Admit(begin, 1500)
	p.SetLink(Link{Delay: time.Millisecond})
	if second, _ := p.Admit(begin.Add(time.Millisecond), 1500); second.Before(first) {
		t.Errorf("the second packet arrives %v before the first", first.Sub(second))
	}
	later := begin.Add(time.Second)
	if third, _ := p.Admit(later, 1500); third.Sub(later) != time.Millisecond {
		t.Errorf("a packet takes %v on the new link, want 1ms", third.Sub(later))
	}
}

// Losses go on where they were when anything but the seed changes.
// The queue holds so many bytes, whatever the rates at which its packets are sent: half full, it takes the other half.
func TestQueueHoldsItsBytesAcrossRates(t *testing.T) {
	const packet, half = 1000, 50
	for _, rates := range [][]int64{{12_500, 12_500_000}, {12_500_000, 12_500}, {12_500, 12_500_000, 1_000_000}, {12_500_000, 0, 12_500}} {
		link := Link{Rate: rates[0], Queue: 2 * half * packet}
		p, now := NewPath(link), time.Unix(0, 0)
		admitted := func() (n int) {
			for ; n < 3*half; n++ {
				if _, ok := p.Admit(now, packet); !ok {
					break
				}
			}
			return n
		}
		for range half {
			p.Admit(now, packet)
		}
		for _, rate := range rates[1:] {
			link.Rate = rate
			p.SetLink(link)
		}
		if n := admitted(); n != half {
			t.Errorf("rates %v: %d packets find room where there is some for %d", rates, n, half)
		}
		// Half of the packets that came at the first rate have left.
		now = now.Add(time.Duration(half / 2 * packet * int64(time.Second) / rates[0]))
		if n := admitted(); n != half/2 {
			t.Errorf("rates %v: %d packets find room when %d have left", rates, n, half/2)
		}
		now = now.Add(time.Hour)
		if n := admitted(); n != 2*half {
			t.Errorf("rates %v: an empty queue takes %d packets, want %d", rates, n, 2*half)
		}
	}
}

func TestSetLinkGoesOnInTheSequence(t *testing.T) {
	l := Link{Loss: 0.5, Seed: 3}
	one, two := NewPath(l), NewPath(l)
	for i := range 1000 {
		l.Delay = time.Duration(i)
		two.SetLink(l)
		_, a := one.Admit(begin, 1)
		_, b := two.Admit(begin, 1)
		if a != b {
			t.Fatalf("packet %d: arrives %v, after SetLink %v", i, a, b)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, l := range map[string]Link{
		"wansim: rate of -1 bytes/s: want 0 (unlimited) or more": {Rate: -1},
		"wansim: delay of -1ns: want 0 or more":                  {Delay: -1},
		"wansim: jitter of -1ns: want 0 or more":                 {Jitter: -1},
		"wansim: loss of -0.1: want a probability in [0, 1]":     {Loss: -0.1},
		"wansim: loss of 1.1: want a probability in [0, 1]":      {Loss: 1.1},
		"wansim: loss of NaN: want a probability in [0, 1]":      {Loss: math.NaN()},
		"wansim: queue of -1 bytes: want 0 (unlimited) or more":  {Queue: -1},
	} {
		if err := l.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", l, err, want)
		}
	}
	if err := (Link{Rate: 1, Delay: 1, Jitter: 1, Loss: 1, Queue: 1, Seed: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestDefaultQueue(t *testing.T) {
	for _, c := range []struct {
		rate int64
		rtt  time.Duration
		want int
	}{
		{125_000_000, 80 * time.Millisecond, 10_000_000},
		{1_250_000, 80 * time.Millisecond, MinQueue},
		{125_000_000, 0, MinQueue},
		{0, time.Second, MinQueue},
	} {
		if got := DefaultQueue(c.rate, c.rtt); got != c.want {
			t.Errorf("%d bytes/s, %v: %d bytes, want %d", c.rate, c.rtt, got, c.want)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	p := NewPath(Link{Rate: 125_000_000, Delay: time.Millisecond, Jitter: time.Microsecond, Loss: 0.01, Queue: 1 << 20})
	now := begin
	for b.Loop() {
		now = now.Add(12 * time.Microsecond)
		p.Admit(now, 1500)
	}
}
