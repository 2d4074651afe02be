package send

import (
	"slices"
	"testing"
)

// Of blocks whose bytes lie between each other's only the largest has parts; of others each has.
func TestBlocksOfPartsLieApart(t *testing.T) {
	for name, c := range map[string]struct {
		runs []run
		want []bool
	}{
		"one":            {[]run{{3, 0}, {1, literal}, {2, 0}}, []bool{true}},
		"apart":          {[]run{{3, 0}, {2, 0}, {1, literal}, {5, 1}, {2, 1}}, []bool{true, true}},
		"interleaved":    {[]run{{3, 0}, {4, 1}, {2, 0}, {2, 1}}, []bool{false, true}},
		"at the end":     {[]run{{3, 0}, {4, 1}, {2, 0}}, []bool{true, false}},
		"others between": {[]run{{3, 0}, {1, 1}, {2, 0}}, []bool{true, false}},
	} {
		g := &group{}
		for _, r := range c.runs {
			if r.block == literal {
				g.add(r.n, literal)
				continue
			}
			if r.block == len(g.blocks) {
				g.blocks = append(g.blocks, &block{index: r.block})
			}
			g.blocks[r.block].filled += r.n
			g.add(r.n, r.block)
		}
		if got := g.apart(func(b *block) bool { return b.filled > 1 }); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
