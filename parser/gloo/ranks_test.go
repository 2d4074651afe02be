package gloo

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

func TestRanks(t *testing.T) {
	for name, c := range map[string]struct {
		limit int // configured
		steps func(*ranks)
		want  int
	}{
		"nothing is known":                  {0, func(*ranks) {}, 0},
		"two are configured":                {2, func(*ranks) {}, 2},
		"three are configured, at most":     {3, func(*ranks) {}, 0},
		"both send: two":                    {0, func(r *ranks) { r.reduce(parser.Client, 0); r.reduce(parser.Server, 0) }, 2},
		"one sends four: not two":           {3, func(r *ranks) { reduces(r, 4) }, 3},
		"one sends three: may be two":       {3, func(r *ranks) { reduces(r, 3) }, 0},
		"an all-gather proves it":           {0, func(r *ranks) { r.prove(5) }, 5},
		"it proves more than is configured": {4, func(r *ranks) { r.prove(5) }, 0},
		"both send after all":               {3, func(r *ranks) { reduces(r, 4); r.reduce(parser.Server, 0) }, 0},
		"two are configured, one sends":     {2, func(r *ranks) { reduces(r, 4) }, 0},
	} {
		r := &ranks{high: c.limit}
		c.steps(r)
		if got := r.known(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func reduces(r *ranks, n int) {
	for k := range n {
		r.reduce(parser.Client, k)
	}
}
