package datagram

import (
	"bytes"
	"math/bits"
	"slices"
	"testing"
	"time"
)

// steps returns how long each of n steps takes, in which each end sends a burst when the other end's has come whole,
// over a path of 200 Mbit/s and 80 ms that loses a share of packets each way; and the bytes that left, over those of
// the bursts.
func steps(t testing.TB, burst, n int, loss float64, repairs bool) (took []time.Duration, overhead float64) {
	w := newWorld(t, 9)
	there := path{rate: 25e6, delay: 40 * time.Millisecond, queue: 2e6, loss: loss}
	back := there
	a, b := w.pair(&there, &back, 32<<20)
	for _, e := range []*end{a, b} {
		e.repairs.never = !repairs
	}
	send := func(e *end) {
		for left := burst; left > 0; left -= 64 << 10 {
			e.Queue(make([]byte, min(left, 64<<10)), Free)
		}
		w.at(w.now, e.pump)
	}
	began, came := w.now, [2]int{}
	a.taken = func(r []byte) {
		if came[0] += len(r); came[0] == burst {
			took, began, came[0] = append(took, w.now-began), w.now, 0
			send(a)
		}
	}
	b.taken = func(r []byte) {
		if came[1] += len(r); came[1] == burst {
			came[1] = 0
			send(b)
		}
	}
	send(a)
	warm := n / 10
	left := 0
	w.run(time.Hour, func() bool {
		if len(took) == warm && left == 0 {
			left = a.bytes + b.bytes
		}
		return len(took) == n+warm
	})
	return took[warm:], float64(a.bytes+b.bytes-left) / float64(2*n*burst)
}

func mean(x []time.Duration) (sum time.Duration) {
	for _, d := range x {
		sum += d / time.Duration(len(x))
	}
	return sum
}

// TestSteps: bursts leave as fast as the path carries them, although the engine is idle between them, and repairs
// shorten steps where packets are lost.
func TestSteps(t *testing.T) {
	for _, burst := range []int{50e3, 200e3, 1e6} {
		minimum := 80*time.Millisecond + time.Duration(2*float64(burst)/25e6*1e9)
		clean, bytes := steps(t, burst, 60, 0, true)
		if m := mean(clean); m > minimum*6/5 || bytes > 1.06 {
			t.Errorf("bursts of %d bytes: a step takes %v, and the path %v; %.3f bytes leave for one", burst, m, minimum, bytes)
		}
		plain, _ := steps(t, burst, 60, 0.01, false)
		with, bytes := steps(t, burst, 60, 0.01, true)
		t.Logf("bursts of %7d bytes: the path takes %v for a step, the engine %v; at 1 %% of loss %v without and %v with repairs, with %.3f bytes for one",
			burst, minimum, mean(clean), mean(plain), mean(with), bytes)
		if burst < 1e6 && mean(with) > mean(plain)*17/20 {
			t.Errorf("bursts of %d bytes: at 1 %% of loss a step takes %v with repairs, %v without", burst, mean(with), mean(plain))
		}
		if bytes > 1.25 {
			t.Errorf("%.3f bytes leave for one", bytes)
		}
	}
}

// TestRepair: of the packets of a repair any one is made from the others, and nothing where two are missing, or none.
func TestRepair(t *testing.T) {
	r := repairing{}
	packets := map[uint64][]byte{}
	for i := range uint64(25) {
		number := 1000 + 2*i
		packets[number] = bytes.Repeat([]byte{byte(i + 1)}, 10+int(i*7%13))
		r.noted(0, 0, number, packets[number])
	}
	repaired := map[uint64]int{}
	for len(r.since) > 0 {
		read := packetReader{rest: r.next(nil)[1:]}
		p, ok := read.repair()
		if !ok || read.err != nil {
			t.Fatal(read.err)
		}
		var members []uint64
		for m := p.mask; m != 0; m &= m - 1 {
			members = append(members, p.first+uint64(bits.TrailingZeros64(m)))
		}
		if len(members) > repairGroup {
			t.Errorf("a repair of %d packets", len(members))
		}
		without := func(missing ...uint64) []byte {
			ring := repairRing{}
			for number, data := range packets {
				if !slices.Contains(missing, number) {
					ring.keep(number, data)
				}
			}
			return ring.mend(&p, func(uint64) bool { return false })
		}
		for i, number := range members {
			repaired[number]++
			if got := without(number); !bytes.Equal(got, packets[number]) {
				t.Errorf("packet %d becomes %x, want %x", number, got, packets[number])
			}
			if other := members[(i+1)%len(members)]; other != number && without(number, other) != nil {
				t.Error("two packets are missing, and one is made")
			}
		}
		if without() != nil {
			t.Error("none is missing, and one is made")
		}
	}
	if len(repaired) != len(packets) {
		t.Errorf("%d of %d packets have a repair", len(repaired), len(packets))
	}
	for number, n := range repaired {
		if n != 1 {
			t.Errorf("packet %d has %d repairs", number, n)
		}
	}
}
