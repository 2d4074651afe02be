package papers

import (
	"context"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs/keys"
)

// fastsgdKeys measures Table V: the bits of a key as it is, as SketchML codes it and as FastSGD does.
func fastsgdKeys(_ context.Context, l *lab, t *Table) error {
	s, err := l.workerSupports(t)
	if err != nil {
		return err
	}
	t.add(claim{label: "Adam", quantity: "bits a key", paper: 32}.near(0), 8*keyLen)
	t.add(claim{label: "SketchML", quantity: "bits a key", paper: 9.95, why: denser(s)}.within(1.1), s.bits(keys.DeltaBinary{}))
	t.add(claim{label: "FastSGD", quantity: "bits a key", paper: 6.04, why: denser(s)}.within(1.1), s.bits(keys.BitGrain{L: 2}))
	return nil
}

const keyLen, pairLen = 4, 12 // bytes of a key as it is, and of a key with a value of 64 bits

// fastsgdFlags measures Table VI: the bits of a key by the size of the length flag. The table's cells for 4 and 5 bits are
// left out: Algorithm 2 does not give them, whatever the keys, since flags of 4 and 5 bits would leave no more than 8 and
// 10 bits for deltas that take 4 on average.
func fastsgdFlags(_ context.Context, l *lab, t *Table) error {
	s, err := l.workerSupports(t)
	if err != nil {
		return err
	}
	best, least := 0, 0.0
	for i, paper := range []float64{8.65, 6.04, 7.06} {
		bits := s.bits(keys.BitGrain{L: i + 1})
		t.add(claim{label: fmt.Sprintf("l=%d", i+1), quantity: "bits a key", paper: paper, why: denser(s)}.within(1.35), bits)
		if best == 0 || bits < least {
			best, least = i+1, bits
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
