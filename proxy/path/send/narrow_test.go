package send

import "testing"

// The buffer is small from the beginning until the link is known to be fast, or has taken many bytes; and never again.
func TestNarrow(t *testing.T) {
	type step struct {
		n    int
		rate float64
		want bool
	}
	for name, steps := range map[string][]step{
		"a slow link, that is forgotten when nothing is sent": {{1, 0, true}, {1 << 20, 0, true}, {2 << 20, 150e3, true}, {1 << 20, 150e3, true}, {100, 150e3, true}},
		"a fast link":           {{1, 0, true}, {1000, 100e6, false}, {1000, 0, false}},
		"a link nobody knows":   {{1, 0, true}, {manyNarrow, 0, false}},
		"a link that gets slow": {{1, 100e6, false}, {1000, 1e6, false}},
	} {
		w := narrower{on: true}
		for i, s := range steps {
			if got := w.want(s.n, s.rate); got != s.want {
				t.Errorf("%s, step %d: small %v, want %v", name, i, got, s.want)
			} else if got != w.on {
				w = narrower{on: got}
			}
		}
	}
}
