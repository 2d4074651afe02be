package papers

import (
	"context"
	"fmt"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/papers/cluster"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/train"
	"github.com/gradproxy/gradproxy/codecs/keys"
)

// fastsgdKeys measures Table V: the bits of a key as it is, as SketchML codes it and as FastSGD does.
func fastsgdKeys(ctx context.Context, l *lab, t *Table) error {
	supports, err := l.supports(ctx, t)
	if err != nil {
		return err
	}
	bits := claim{quantity: "bits a key", why: denser(supports)}
	for _, c := range []struct {
		label  string
		paper  float64
		coding keys.Coding
	}{{"SketchML", 9.95, keys.DeltaBinary{}}, {"FastSGD", 6.04, keys.BitGrain{L: 2}}} {
		bits.label, bits.paper = c.label, c.paper
		t.add(bits.within(1.1), supports.bits(c.coding))
	}
	return nil
}

// fastsgdFlags measures Table VI: the bits of a key by the size of the length flag. What the paper has at 4 and 5 bits
// cannot come of its Algorithm 2, whose keys are then at least as long as their flags only: those cells are left out.
func fastsgdFlags(ctx context.Context, l *lab, t *Table) error {
	supports, err := l.supports(ctx, t)
	if err != nil {
		return err
	}
	for i, paper := range []float64{8.65, 6.04, 7.06} {
		flag := i + 1
		t.add(claim{label: fmt.Sprintf("l=%d", flag), quantity: "bits a key", paper: paper, why: denser(supports)}.within(1.35),
			supports.bits(keys.BitGrain{L: flag}))
	}
	best := 1.0
	for i := range 3 {
		if supports.bits(keys.BitGrain{L: i + 1}) < supports.bits(keys.BitGrain{L: int(best)}) {
			best = float64(i + 1)
		}
	}
	t.add(claim{label: "the best l", quantity: "bits of the flag", paper: 2}.near(0), best)
	return nil
}

// denser says how the gradients here differ from the paper's where keys do not come out alike.
func denser(s *supports) string {
	return fmt.Sprintf("one feature in %.0f is in a gradient here, and bits a key follow that; the paper's KDD12 gradients are of another density, which it does not state", 1/s.density())
}

// supports are the keys of gradients: of which features a worker's gradient is not zero.
type supports struct {
	features int
	keys     [][]uint64
}

func (s *supports) count() (n int) {
	for _, k := range s.keys {
		n += len(k)
	}
	return n
}

func (s *supports) density() float64 {
	return float64(s.count()) / float64(s.features*len(s.keys))
}

// bits is the mean over all keys.
func (s *supports) bits(c keys.Coding) float64 {
	bits := 0.0
	for _, k := range s.keys {
		bits += keys.BitsPerKey(c, k) * float64(len(k))
	}
	return bits / float64(s.count())
}

// supports returns the keys of an epoch's gradients of logistic regression.
func (l *lab) supports(ctx context.Context, t *Table) (*supports, error) {
	m, err := l.mails()
	if err != nil {
		return nil, err
	}
	s := &supports{features: m.Width}
	job := l.sparseJob(m, train.Logistic)
	job.Epochs = 1
	_, err = cluster.Fit(ctx, job, func(gradient []float32) {
		var k []uint64
		for i, g := range gradient {
			if g != 0 {
				k = append(k, uint64(i))
			}
		}
		s.keys = append(s.keys, k)
	})
	if err == nil {
		t.setup("the keys of %d gradients of logistic regression, %.1f %% of %d features in each", len(s.keys), 100*s.density(), s.features)
	}
	return s, err
}
