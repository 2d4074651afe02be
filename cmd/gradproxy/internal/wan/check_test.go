package wan

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The range leaves half of the misses outside at each end, and no more: checked by adding up the distribution another
// way.
func TestBinomialRange(t *testing.T) {
	for _, x := range []struct {
		n int
		p float64
	}{{2000, 0.01}, {2000, 0.0005}, {2000, 0.2}, {2000, 0.999}, {10, 0.5}, {1, 0.5}} {
		minimum, maximum := binomialRange(x.n, x.p, 0.01)
		// Pascal's triangle, a row an event.
		chance := make([]float64, x.n+1)
		chance[0] = 1
		for i := 1; i <= x.n; i++ {
			for k := i; k > 0; k-- {
				chance[k] = chance[k]*(1-x.p) + chance[k-1]*x.p
			}
			chance[0] *= 1 - x.p
		}
		below, above := 0.0, 0.0
		for k := range minimum {
			below += chance[k]
		}
		for k := maximum + 1; k <= x.n; k++ {
			above += chance[k]
		}
		if below > 0.005 || above > 0.005 {
			t.Errorf("n %d, p %v: %d to %d leaves %.4f and %.4f outside", x.n, x.p, minimum, maximum, below, above)
		}
		if below+chance[minimum] <= 0.005 || above+chance[maximum] <= 0.005 {
			t.Errorf("n %d, p %v: %d to %d is wider than need be", x.n, x.p, minimum, maximum)
		}
	}
	if minimum, maximum := binomialRange(2000, 0, 0.01); minimum != 0 || maximum != 0 {
		t.Errorf("no loss: %d to %d", minimum, maximum)
	}
	if minimum, maximum := binomialRange(2000, 1, 0.01); minimum != 2000 || maximum != 2000 {
		t.Errorf("all lost: %d to %d", minimum, maximum)
	}
}

// The share of jitter in the lower quartile, and how far that of 64 samples is from it by chance, against many draws.
func TestJitterQuartile(t *testing.T) {
	const n, runs = 64, 4000
	for _, x := range [][2]time.Duration{{0, 0}, {10e6, 0}, {10e6, 10e6}, {10e6, 2e6}, {2e6, 10e6}, {10e6, 6e6}} {
		quartile, spread := jitterQuartile(x[0], x[1], n)
		rng := rand.New(rand.NewPCG(1, 2))
		var sum, squares float64
		for range runs {
			draws := make([]float64, n)
			for i := range draws {
				draws[i] = rng.Float64()*float64(x[0]) + rng.Float64()*float64(x[1])
			}
			slices.Sort(draws)
			q := draws[n/4]
			sum += q
			squares += q * q
		}
		mean := sum / runs
		deviation := math.Sqrt(max(0, squares/runs-mean*mean))
		if math.Abs(mean-float64(quartile)) > 0.02*float64(x[0]+x[1]) || math.Abs(deviation-float64(spread)) > 0.15*float64(spread) {
			t.Errorf("%v: quartile %v ± %v, draws say %.3fms ± %.3fms", x, quartile, spread, mean/1e6, deviation/1e6)
		}
	}
}

// exact is the answer of probes on a link that is as asked.
func exact(q question) answer {
	late, _ := jitterQuartile(q.jitter[0], q.jitter[1], rttProbes)
	return answer{rate: float64(q.rate), rtt: q.rtt + late + q.own[0] + q.own[1], sent: lossProbes, lost: int(q.loss * lossProbes)}
}

func TestJudge(t *testing.T) {
	q := question{rate: 10e6, rtt: 100 * time.Millisecond, loss: 0.01, own: [2]time.Duration{54400, 0}}
	if off := q.judge(exact(q)); off != "" {
		t.Errorf("as asked, but %s", off)
	}
	for _, x := range []struct {
		change func(*answer)
		want   string
	}{
		{func(a *answer) { a.rate *= 1.019 }, ""},
		{func(a *answer) { a.rate *= 1.021 }, "rate +2.1 %"},
		{func(a *answer) { a.rate *= 0.979 }, "rate -2.1 %"},
		{func(a *answer) { a.rate = 0 }, "rate -100.0 %"},
		{func(a *answer) { a.rtt += 1499 * time.Microsecond }, ""},
		{func(a *answer) { a.rtt += 1501 * time.Microsecond }, "rtt +1.50 ms"},
		{func(a *answer) { a.rtt -= 1501 * time.Microsecond }, "rtt -1.50 ms"},
		{func(a *answer) { a.rtt = 0 }, "rtt -100.00 ms"},
		{func(a *answer) { a.lost = 33 }, "33 of 2000 lost, want 10 to 32"},
		{func(a *answer) { a.lost = 9 }, "9 of 2000 lost, want 10 to 32"},
		{func(a *answer) { a.lost = 32 }, ""},
		{func(a *answer) { a.sent, a.lost = 0, 0 }, "0 of 0 lost"},
	} {
		a := exact(q)
		x.change(&a)
		if off := q.judge(a); off != x.want && (x.want == "" || !strings.HasPrefix(off, x.want)) {
			t.Errorf("%+v: %q, want %q", a, off, x.want)
		}
	}
}

// A direction is as asked if two of three tries say so, and no more are made than that needs.
func TestTries(t *testing.T) {
	q := question{rate: 10e6, rtt: time.Millisecond}
	good, bad := exact(q), exact(q)
	bad.rate = 9e6
	for _, x := range []struct {
		answers []answer
		ok      bool
		rate    float64
	}{
		{[]answer{good, good}, true, 10e6},
		{[]answer{bad, good, good}, true, 10e6},
		{[]answer{good, bad, good}, true, 10e6},
		{[]answer{bad, bad}, false, 9e6},
		{[]answer{good, bad, bad}, false, 9e6},
	} {
		left := x.answers
		w, err := q.try("a", "b", func() (answer, error) {
			a := left[0]
			left = left[1:]
			return a, nil
		})
		if err != nil || w.OK != x.ok || len(left) > 0 || w.Tries != len(x.answers) || w.Achieved.Rate != x.rate {
			t.Errorf("%+v: %+v, %v, %d left", x.answers, w, err, len(left))
		}
	}
	if _, err := q.try("a", "b", func() (answer, error) { return answer{}, errors.New("no") }); err == nil || err.Error() != "a -> b: no" {
		t.Errorf("an error of the probes: %v", err)
	}
}

// The question to probes follows from the plan: the slower of link and bottleneck, both directions' delays and jitters.
func TestQuestionOfAPlan(t *testing.T) {
	hospitals, _ := LoadReady("hospitals")
	p := NewPlan(hospitals, User, "")
	south := p.Links[1]
	q := p.ask(south.Ends, south.There, south.Back)
	if q.from != 2 || q.to != 0 || q.rate != 20e6 || q.rtt != 24*time.Millisecond || q.loss != 0.0005 || q.passes != 0.9995 || q.delay != 12*time.Millisecond {
		t.Errorf("%+v", q)
	}
	north := p.Links[0]
	north.There.Rate = 0 // the bottleneck's then
	if q := p.ask(north.Ends, north.There, north.Back); q.rate != 50e6 || q.jitter != [2]time.Duration{5e5, 5e5} {
		t.Errorf("%+v", q)
	}
}
