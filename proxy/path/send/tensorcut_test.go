package send

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// A block ends between two elements wherever its sender may wait for an answer, or has a timer.
func TestBlocksEndBetweenElements(t *testing.T) {
	x := &tensorCut{plan: plan{unit: 4}, t: tensor.Tensor{Size: 1000}, want: 256}
	for _, c := range []struct {
		off, hold, n int
		timed        bool
	}{
		{0, 1000, 256, false},
		{0, 256, 256, false},
		{0, 255, 252, false},
		{0, 5, 4, false},
		{0, 3, 256, true},
		{0, 0, 256, true},
		{0, -7, 256, true},
		{996, 4, 4, false},
		{996, 1, 4, true},
	} {
		x.off = c.off
		if n, timed := x.next(c.hold); n != c.n || timed != c.timed {
			t.Errorf("at %d of 1000 bytes, %d more without an answer: %d bytes, timed %t; want %d, %t", c.off, c.hold, n, timed, c.n, c.timed)
		}
	}
}
