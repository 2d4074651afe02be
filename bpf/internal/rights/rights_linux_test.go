package rights

import "testing"

// The rights are named that no effective capability stands for.
func TestMissing(t *testing.T) {
	rights := []Right{{"A", []uint{1, 40}}, {"B", []uint{2}}, {"C", []uint{33}}}
	for effective, want := range map[uint64]string{
		0:                   "A, B and C are",
		1 << 1:              "B and C are",
		1<<40 | 1<<33:       "B is",
		1<<40 | 1<<1:        "B and C are",
		1<<40 | 1<<2:        "C is",
		1<<2 | 1<<33:        "A is",
		1<<1 | 1<<2 | 1<<33: "",
	} {
		if got := missing(rights, effective); got != want {
			t.Errorf("capabilities %#x: %q, want %q", effective, got, want)
		}
	}
}
