package gloosim

import (
	"slices"
	"testing"
)

// Unmodified PyTorch sends these messages for these sizes: lengths by rank, first phase | second.
func TestPlanIsGloos(t *testing.T) {
	for _, c := range []struct {
		size, width, ranks, rank int
		scatter, gather          []int
	}{
		{1212244, 4, 2, 0, []int{303064, 303052}, []int{303064, 303064}},
		{1212244, 4, 2, 1, []int{303064, 303064}, []int{303064, 303052}},
		{380244, 4, 3, 0, []int{63376, 63376, 63376, 63364}, []int{63376, 63376, 63376, 63376}},
		{380244, 4, 3, 1, []int{63376, 63364, 63376, 63376}, []int{63376, 63376, 63376, 63364}},
		{4, 4, 2, 0, nil, []int{4}},
		{4, 4, 2, 1, []int{4}, nil},
		{0, 4, 2, 0, nil, nil},
		{600106, 2, 2, 0, []int{150028, 150022}, []int{150028, 150028}},
	} {
		p := newPlan(c.size, c.width, c.ranks)
		var scatter, gather []int
		for i := range p.rounds() {
			if s, _ := p.scatter(c.rank, i); s.len > 0 {
				scatter = append(scatter, s.len)
			}
			if s, _ := p.gather(c.rank, i); s.len > 0 {
				gather = append(gather, s.len)
			}
		}
		if !slices.Equal(scatter, c.scatter) || !slices.Equal(gather, c.gather) {
			t.Errorf("%d bytes, rank %d of %d: %v | %v, want %v | %v", c.size, c.rank, c.ranks, scatter, gather, c.scatter, c.gather)
		}
	}
	if p := newPlan(25<<20, 4, 2); p.segments != 26 || p.segment != 1008248 {
		t.Errorf("25 MiB: %d segments of %d, want 26 of 1008248", p.segments, p.segment)
	}
}

// The piece that a rank sends in round i is the piece that the rank before it receives in round i.
func TestNeighboursAgreeOnEachRound(t *testing.T) {
	for ranks := 2; ranks <= 9; ranks++ {
		for _, size := range []int{0, 4, 16, 52, 4096, 1 << 20, 3<<20 + 4, 9 << 20} {
			p := newPlan(size, 4, ranks)
			for rank := range ranks {
				for i := range p.rounds() {
					send, _ := p.scatter(rank, i)
					_, recv := p.scatter((rank+ranks-1)%ranks, i)
					if send != recv {
						t.Fatalf("%d bytes, %d ranks, round %d of the first phase: rank %d sends %v, %v is awaited", size, ranks, i, rank, send, recv)
					}
					send, _ = p.gather(rank, i)
					_, recv = p.gather((rank+ranks-1)%ranks, i)
					if send != recv {
						t.Fatalf("%d bytes, %d ranks, round %d of the second phase: rank %d sends %v, %v is awaited", size, ranks, i, rank, send, recv)
					}
				}
			}
		}
	}
}
