package tc

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/vm"
)

// The machine's own kernel may lack netem and fq; this one has both. It also is an old one (6.1), without TCX, without
// type information of its own, and with a verifier that demands aligned access. It starts programs slowly, so that it
// runs only the kernel's own part.
func TestUnderAnotherKernel(t *testing.T) {
	if vm.Inside() {
		t.Skip("is not for the guest itself")
	}
	if require.Race {
		t.Skip("the guest runs without the race detector, whose layout of memory it does not have: the plain run does this")
	}
	require.Long(t)
	require.Root(t)
	guest := vm.Guest{
		Env:     []string{require.Variable + "=root,ip,tc,netem,fq"}, // there, none of the tests may be skipped
		Timeout: 5 * time.Minute,
		Exact:   true,
	}
	out := guest.RunTests(t, ".", "-test.run=^(TestApplyDoesWhatThePlanPrints|TestKernelLinks|TestBPFLinks|"+
		"TestProgramLosesBySeed|TestProgramMarksBySeed|TestQueueHoldsItsBytes|TestQueueHoldsItsBytesAcrossRates|TestQueueAgainstItsPackets|"+
		"TestChangeOfAProgram|TestProgramCountsSegments|TestProgramReadsPackets)$")
	t.Log(out)
}

// A back end makes plans.
type backEnd func(Link, Hop, Support) (Plan, error)

func TestKernelLinks(t *testing.T) { testLinks(t, "kernel", "netem", KernelPlan) }

func TestBPFLinks(t *testing.T) { testLinks(t, "ebpf", "fq", BPFPlan) }

// testLinks measures links and compares with the settings: rates within 2 %, the time that they add to round trips
// within 0.5 ms and 1 %, losses within the binomial's 99 %. Other work on the machine disturbs a measurement, so that
// two of three have to agree. Links that need something that this kernel has not are left to TestUnderAnotherKernel.
// Its guest is slow, and an emulated processor late as well: no link is faster than 50 Mbit/s in a guest, and 20 in an
// emulated one, where round trips may be 2 ms late.
func testLinks(t *testing.T, name, something string, plan backEnd) {
	w := newBench(t)
	has := support(t)
	const trips = 15
	fastest, late := mbit(100), 500*time.Microsecond
	switch {
	case vm.Inside() && vm.Emulated():
		fastest, late = mbit(20), 2*time.Millisecond
	case vm.Inside():
		fastest = mbit(50)
	}
	shortest := make([]time.Duration, 5)
	for i := range shortest {
		shortest[i] = w.roundTrips(t, trips)[0]
	}
	slices.Sort(shortest)
	bare := shortest[2] // the time of the kernel's path without a link on it: all tries rest on it
	for _, l := range []Link{
		{Rate: mbit(20)},
		{Rate: mbit(10), Delay: 10 * time.Millisecond},
		{Rate: mbit(100), Delay: 40 * time.Millisecond},
		{Rate: mbit(50), Delay: 5 * time.Millisecond, Jitter: 4 * time.Millisecond, Loss: 0.01, Seed: 5},
		{Delay: 75 * time.Millisecond},
		{Loss: 0.1, Seed: 6},
	} {
		l.Rate = min(l.Rate, fastest)
		t.Run(describe(l), func(t *testing.T) {
			there, err := plan(l, w.ab, has)
			if errors.Is(err, errors.ErrUnsupported) {
				require.Named(t, something, false, "TestUnderAnotherKernel has a kernel with it")
			}
			applied(t, there, err)
			applied(t, must(plan(l, w.ba, has)), nil)
			if l.Rate > 0 {
				asked := float64(l.Rate)
				twice(t, func() (string, bool) {
					got := w.rate(t, int(asked)/fullPacket) // a second of it
					return fmt.Sprintf("%s: rate: asked %.3f, achieved %.3f Mbit/s", name, asked*8/1e6, got*8/1e6), math.Abs(got/asked-1) <= 0.02
				})
			}
			asked := 2*l.Delay + l.Jitter // its mean, and the median of two, is half of it each way
			twice(t, func() (string, bool) {
				all := w.roundTrips(t, trips)
				got, bound := all[0], late+asked/100 // the shortest: others may have waited for the processor
				if l.Jitter > 0 {                    // two uniform ones: three standard deviations of their mean, which some late ones move
					got = all[trips/2]
					bound += time.Duration(3 * math.Sqrt(2./12/trips) * float64(l.Jitter))
				}
				return fmt.Sprintf("%s: rtt: asked %v, achieved %v beyond the %v without a link", name, asked, got-bare, bare),
					(got - bare - asked).Abs() <= bound
			})
			const packets = 2000
			minimum, maximum := binomial99(packets, l.Loss)
			twice(t, func() (string, bool) {
				n := len(w.losses(t, packets))
				return fmt.Sprintf("%s: loss: asked %v, achieved %v (%d of %d, 99 %%: %d to %d)",
						name, l.Loss, float64(n)/packets, n, packets, minimum, maximum),
					minimum <= n && n <= maximum
			})
		})
	}
}

// The rules that no Link needs shape as well: a class of an HTB by destination, and incoming packets, by way of an IFB.
func TestSharesAndIncoming(t *testing.T) {
	w := newBench(t)
	out, in := w.ab.Out, w.ab.In
	one, two, three := NewHandle(1, 1), NewHandle(1, 2), NewHandle(1, 3)
	ifb := Device{in.Namespace, "ifb"}
	for name, c := range map[string]struct {
		plan Plan
		want float64 // bytes per second
	}{
		"htb": {Plan{
			Segments{w.ab.Sender, 1},
			HTB{Place{Device: out, Parent: Root, Handle: NewHandle(1, 0), Overhead: -EthernetHeader}, 3},
			HTBClass{out, NewHandle(1, 0), one, uint64(mbit(40)), uint64(mbit(40)), 20_000},
			HTBClass{out, one, two, uint64(mbit(20)), uint64(mbit(20)), 20_000},
			HTBClass{out, one, three, uint64(mbit(5)), uint64(mbit(5)), 20_000},
			Match{out, NewHandle(1, 0), 1, netip.PrefixFrom(atB.Addr(), 24), two},
		}, float64(mbit(20))},
		"ifb": {Plan{
			Segments{w.ab.Sender, 1},
			IFB{ifb},
			TBF{Place{Device: ifb, Parent: Root, Handle: NewHandle(1, 0), Overhead: -EthernetHeader}, uint64(mbit(30)), 20_000, unlimitedQueue},
			Clsact{in},
			Redirect{in, ifb.Name},
		}, float64(mbit(30))},
	} {
		t.Run(name, func(t *testing.T) {
			a := applied(t, c.plan, nil)
			twice(t, func() (string, bool) {
				got := w.rate(t, 600)
				return fmt.Sprintf("%s: rate: asked %.3f, achieved %.3f Mbit/s", name, c.want*8/1e6, got*8/1e6), math.Abs(got/c.want-1) <= 0.02
			})
			if err := a.Undo(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// twice fails the test unless two of three measurements agree with the settings.
func twice(t *testing.T, measure func() (said string, ok bool)) {
	t.Helper()
	good := 0
	for try := range 3 {
		said, ok := measure()
		t.Log(said)
		if ok {
			good++
		}
		if good == 2 || try-good == 1 {
			break
		}
	}
	if good < 2 {
		t.Error("two of three measurements are not as asked")
	}
}

func mbit(n int64) int64 { return n * 1e6 / 8 }

func describe(l Link) string {
	return fmt.Sprintf("%d Mbit/s, %v+%v, loss %v", l.Rate*8/1e6, l.Delay, l.Jitter, l.Loss)
}

// A burst finds the room of the queue, and that of the packets that leave while it comes in.
func TestQueueHoldsItsBytes(t *testing.T) {
	w := newBench(t)
	has := support(t)
	const queue, packets = 60_000, 400
	l := Link{Rate: mbit(10), Queue: queue}
	plans := map[string]Plan{"kernel": must(KernelPlan(l, w.ab, has))}
	if has.FQ {
		plans["ebpf"] = must(BPFPlan(l, w.ab, has))
	}
	for name, p := range plans {
		t.Run(name, func(t *testing.T) {
			a := applied(t, p, nil)
			begin := time.Now()
			send(t, w.from, atB, packets, fullPacket)
			left := float64(l.Rate)*time.Since(begin).Seconds() + float64(burst(l.Rate))
			came := receive(t, w.to, 500*time.Millisecond)
			minimum, maximum := queue/fullPacket, int((queue+left)/fullPacket)+2
			if len(came) < minimum || len(came) > maximum {
				t.Errorf("%d packets of a burst came, want %d to %d", len(came), minimum, maximum)
			}
			inOrder(t, came)
			c, err := a.Plan().Counters()
			if err != nil {
				t.Fatal(err)
			}
			n := uint64(len(came))
			if want := (Counters{Packets: n, Bytes: n * fullPacket, Dropped: packets - n}); c != want {
				t.Errorf("counters %+v, want %+v", c, want)
			}
			if err := a.Undo(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func inOrder(t *testing.T, came []arrival) {
	t.Helper()
	if !slices.IsSortedFunc(came, func(a, b arrival) int { return a.number - b.number }) {
		t.Error("packets overtook one another")
	}
}
