package sketchedsgd

import (
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
)

// A Picker chooses candidates from sketches of one Plan. It keeps the memory that this takes, 4 bytes a coordinate.
type Picker struct {
	estimates []float32
	keys      []uint64 // the latest choice
}

// Pick returns the candidates that s holds, ascending, valid until the next Pick. step is the number of the sketch
// among the sketches of one seed. The random draws are seeded with it and with the sketch itself.
func (p *Picker) Pick(plan *Plan, s *countsketch.Sketch, step uint64) []uint64 {
	if p.estimates == nil {
		p.estimates = make([]float32, plan.D)
		p.keys = make([]uint64, 0, plan.Candidates())
	}
	s.Query(p.estimates, 0)
	if plan.Pick == HeavyMix {
		p.keys = heavyMix(p.keys[:0], p.estimates, s.SquaredNorm(), plan.K, rng.Of(plan.Seed, step, s.Cells()))
	} else {
		p.keys = Largest(p.keys[:0], p.estimates, plan.Candidates())
	}
	return p.keys
}

// heavyMix appends Topk of Algorithm 1 to dst, given all ĝ and the estimate norm of ‖g‖². It has k coordinates, or none
// if the norm is 0.
func heavyMix(dst []uint64, estimates []float32, norm float64, k int, random rng.Source) []uint64 {
	if norm == 0 {
		return dst
	}
	// 3: H <- {i | ĝ_i² >= norm/k}, NH <- {i | ĝ_i² < norm/k}
	threshold := norm / float64(k)
	isHeavy := func(e float32) bool { return float64(e)*float64(e) >= threshold }
	heavy := 0
	for _, e := range estimates {
		if isHeavy(e) {
			heavy++
		}
	}
	if heavy >= k {
		return Largest(dst, estimates, k)
	}
	// 4: Topk = H ∪ rand_l(NH), where l = k - |H|. Each of NH is drawn with the probability that it has when the rest
	// of l comes from the rest of NH, so that all subsets are equally likely.
	l, rest := uint64(k-heavy), uint64(len(estimates)-heavy)
	for i, e := range estimates {
		if isHeavy(e) {
			dst = append(dst, uint64(i))
			continue
		}
		if l > 0 && random.Uint64n(rest) < l {
			dst = append(dst, uint64(i))
			l--
		}
		rest--
	}
	return dst
}
