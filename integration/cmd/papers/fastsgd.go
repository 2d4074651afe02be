package main

import (
	"context"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
)

// fastsgdKeys measures Table V: the bits of a key as it is, as SketchML codes it and as FastSGD does.
func fastsgdKeys(_ context.Context, l *lab, t *Table) error {
	s, err := l.workerSupports(t)
	if err != nil {
		return err
	}
	t.add(claim{label: "Adam", quantity: "bits a key", paper: 32, calibrated: true}.near(0), 8*keyLen)
	t.add(claim{label: "SketchML", quantity: "bits a key", paper: 9.95, why: denser(s)}.within(1.1), s.bits(keys.DeltaBinary{}))
	t.add(claim{label: "FastSGD", quantity: "bits a key", paper: 6.04, why: denser(s)}.within(1.1), s.bits(keys.BitGrain{L: 2}))
	return nil
}

const keyLen, pairLen = 4, 12 // bytes of a key as it is, and of a key with a value of 64 bits

// fastsgdFlags measures Table VI: the bits of a key by the size of the length flag. The table's cells for 4 and 5 bits
// are left out: Algorithm 2 does not give them, whatever the keys, since flags of 4 and 5 bits would leave no more than
// 8 and 10 bits for deltas that take 4 on average.
func fastsgdFlags(_ context.Context, l *lab, t *Table) error {
	s, err := l.workerSupports(t)
	if err != nil {
		return err
	}
	best, fewest := 0, 0.0
	for i, paper := range []float64{8.65, 6.04, 7.06} {
		bits := s.bits(keys.BitGrain{L: i + 1})
		t.add(claim{label: fmt.Sprintf("l=%d", i+1), quantity: "bits a key", paper: paper, why: denser(s)}.within(1.35), bits)
		if best == 0 || bits < fewest {
			best, fewest = i+1, bits
		}
	}
	t.add(claim{label: "the best l", quantity: "bits of a flag", paper: 2, why: denser(s)}.near(0), float64(best))
	return nil
}

// denser says how the gradients here differ from the paper's where keys do not come out alike.
func denser(s *supports) string {
	return fmt.Sprintf("one feature in %.0f is in a gradient here, and the bits of a key follow that; the paper does not say how many are in its own", 1/s.density())
}

// workerSupports are the keys that a worker sends in the papers' training.
func (l *lab) workerSupports(t *Table) (*supports, error) {
	rows, err := l.workerRows()
	if err != nil {
		return nil, err
	}
	s, err := l.supports(rows)
	if err == nil {
		t.setup("%v", s)
	}
	return s, err
}

// fastsgdContenders are the methods of Table VII, with its losses on WebSpam, the data that is likest to ours. The
// paper does not say how many values Top-k sends; here it is a tenth of the values that are not zero.
var fastsgdContenders = []contender{
	{"Adam", "", alone, [...]float64{0.5882, 0.6371, 0.3173}, ""},
	{"FastSGD", "fastsgd", alone, [...]float64{0.5884, 0.6369, 0.3174}, ""},
	{"LogQuant", "logquant", pairs, [...]float64{0.5892, 0.6362, 0.3176}, ""},
	{"SketchML", "skcompress", alone, [...]float64{0.5877, 0.6435, 0.3172}, ""},
	{"Top-k", "topk(k=0.005)", feedback, [...]float64{0.5885, 0.6372, 0.3173}, ""},
}

// fastsgdConvergence measures Table VII's losses.
func fastsgdConvergence(ctx context.Context, l *lab, t *Table) error {
	outcomes, err := l.contest(ctx, t.Paper, fastsgdContenders)
	if err != nil {
		return err
	}
	t.addWays(fastsgdContenders, outcomes)
	return l.setupSparse(t)
}

// fastsgdTime measures Table IV's communication: seconds of an epoch there, bytes of an epoch here.
func fastsgdTime(ctx context.Context, l *lab, t *Table) error {
	outcomes, err := l.contest(ctx, t.Paper, fastsgdContenders)
	if err != nil {
		return err
	}
	t.setup("communication is bytes here, of pushes and pulls, pairs of a key of 32 bits and a value of 64 for Adam; the paper has seconds")
	for i, seconds := range [...][2]float64{{68, 4}, {73, 5}, {84, 6}} {
		adam, fast := outcomes[i][0], outcomes[i][1]
		pairs := pairLen * float64(adam.Push.NonZero+sparseWorkers*adam.Pull.NonZero)
		t.add(claim{label: linearModels[i].loss.String(), quantity: "communication, Adam over FastSGD", paper: seconds[0] / seconds[1],
			why: "the paper's epoch sends several million pairs, of which the filter leaves few; " + fewer(defaultTau, fast)}.within(2.5),
			pairs/float64(fast.Push.Bytes+sparseWorkers*fast.Pull.Bytes))
	}
	return l.setupSparse(t)
}

const defaultTau = 128 // the filter's, by section 4.2 and of the codec

// fewer says how little the filter of tau has to do here.
func fewer(tau float64, o cluster.LinearOutcome) string {
	return fmt.Sprintf("the filter keeps at most %.0f values of a gradient, and here the largest has %d that are not zero", math.Pow(1.1, tau), o.Push.Largest)
}

// fastsgdSizes measures Figure 4 (b): how many times smaller messages are than pairs of a key of 32 bits and a value
// of 64.
func fastsgdSizes(ctx context.Context, l *lab, t *Table) error {
	s, err := l.workerSupports(t)
	if err != nil {
		return err
	}
	m, err := l.mails()
	if err != nil {
		return err
	}
	t.add(claim{label: "its keys alone", quantity: "ratio of a message", paper: 1.4}.within(1.05), pairLen/(s.bits(keys.BitGrain{L: 2})/8+pairLen-keyLen))
	runs := [...]struct {
		contender
		tau    float64
		chosen bool // so that the row holds
	}{
		{contender{name: "all of it", codec: "fastsgd"}, defaultTau, false},
		{contender{name: "not the paper's setting: tau=88, with error feedback", codec: "fastsgd(tau=88)", how: feedback}, 88, true},
	}
	outcomes := make([]cluster.LinearOutcome, len(runs))
	err = parallel(ctx, len(runs), func(ctx context.Context, i int) (err error) {
		job := l.sparseJob(m, linearModels[0])
		job.Push = runs[i].wire()
		job.Pull = job.Push
		outcomes[i], err = cluster.Fit(ctx, job, nil)
		return err
	})
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		t.add(claim{label: runs[i].name, quantity: "ratio of a message, at most", paper: 18720, band: minimum(10000), why: fewer(runs[i].tau, o), calibrated: runs[i].chosen}, o.Push.PairRatio())
		t.setup("%s: logistic regression comes down to %.3f and classifies %.1f %% of the mails rightly", runs[i].name, o.Loss, 100*o.Accuracy)
	}
	return l.setupSparse(t)
}
