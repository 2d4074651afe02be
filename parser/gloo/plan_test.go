package gloo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// sent lists the lengths of a rank's messages, empty ones left out, and how many of them are of phase 1.
func (p plan) sent(rank int) (lengths []int, first int) {
	for k := range p.messages() {
		if l := p.length(rank, k); l > 0 {
			lengths = append(lengths, l)
			if k < p.phase() {
				first++
			}
		}
	}
	return lengths, first
}

// Messages of real all-reduces, as captured from PyTorch and JAX.
func TestPlansOfCapturedRings(t *testing.T) {
	for _, c := range []struct {
		size, elem, ranks, rank int
		lengths                 []int
		first                   int
	}{
		{1212244, 4, 2, 0, []int{303064, 303052, 303064, 303064}, 2},
		{1212244, 4, 2, 1, []int{303064, 303064, 303064, 303052}, 2},
		{1206996, 4, 2, 0, []int{301752, 301740, 301752, 301752}, 2},
		{5248, 4, 2, 1, []int{1312, 1312, 1312, 1312}, 2},
		{600106, 2, 2, 0, []int{150028, 150022, 150028, 150028}, 2},
		{380244, 4, 3, 0, []int{63376, 63376, 63376, 63364, 63376, 63376, 63376, 63376}, 4},
		{4, 4, 2, 1, []int{4}, 1},
		{4, 4, 2, 0, []int{4}, 0},
		{40, 4, 2, 0, []int{12, 4, 12, 12}, 2},
		{16, 8, 2, 0, []int{8, 8}, 0},
	} {
		got, first := planOf(c.size, c.elem, c.ranks).sent(c.rank)
		if !slices.Equal(got, c.lengths) || first != c.first {
			t.Errorf("%d bytes, %d ranks, rank %d: %v, %d of phase 1; want %v, %d", c.size, c.ranks, c.rank, got, first, c.lengths, c.first)
		}
	}
}

func TestPlanOfADefaultBucket(t *testing.T) {
	if p := planOf(25<<20, 4, 2); p.segments != 26 || p.segment != 1008248 {
		t.Errorf("25 MiB, 2 ranks: %d segments of %d bytes, want 26 of 1008248", p.segments, p.segment)
	}
}

// In every ring each rank receives every segment that it needs: every segment passes every rank's link, and in phase 2
// a rank sends only segments that it has.
func TestPlansSendEverySegment(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 7} {
		for _, size := range []int{8, 24, 1000, 380244, 5 << 20, 25 << 20} {
			p := planOf(size, 4, ranks)
			for rank := range ranks {
				got, _ := p.sent(rank)
				total := 0
				for _, l := range got {
					total += l
				}
				own := 0 // phase 1 leaves out the block that ends here, phase 2 the one that the receiver has finished
				for i := range p.perRank {
					for _, block := range []int{rank, rank + ranks - 1} {
						j := (block*p.perRank + i) % p.segments
						own += max(0, min(p.segment, size-j*p.segment))
					}
				}
				if total+own != 2*size {
					t.Errorf("%d bytes, %d ranks, rank %d: %d bytes sent and %d not, of twice %d", size, ranks, rank, total, own, size)
				}
			}
		}
	}
}

// A match finds the plans that planOf has made, and nothing for another count or rank where the lengths tell.
func TestMatchFindsThePlan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ranks, elem := 2+rnd.IntN(6), []int{2, 4, 8}[rnd.IntN(3)]
		size := elem * (crumb*ranks + rnd.IntN(1+rnd.IntN(4<<20)))
		p := planOf(size, elem, ranks)
		rank := rnd.IntN(ranks)
		lengths, first := p.sent(rank)
		if p.segment < crumb || !p.full() {
			continue
		}
		got, ok := match(ranks, rank, len(lengths), func(k int) int { return lengths[k] })
		if !ok || got != p || got.phase() != first {
			t.Fatalf("%d bytes in %d-byte elements, rank %d of %d: found %+v, %v; want %+v", size, elem, rank, ranks, got, ok, p)
		}
		if p.perRank > maxPerRank(p.segment) {
			t.Fatalf("%+v: maxPerRank(%d) = %d", p, p.segment, maxPerRank(p.segment))
		}
		if _, ok := match(ranks, rank, len(lengths)-1, func(k int) int { return lengths[k] }); ok {
			t.Fatalf("%+v: one message less also fits", p)
		}
	}
}
