package shadow

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// Trials remember by key, so that each piece has its own, also of a gradient that another tensor predicts, such as
// NVFlare's differences of weights; weights, which are remembered by their base, keep theirs.
func TestPiecesHaveKeysOfTheirOwn(t *testing.T) {
	key := func(x tensor.Tensor, off int) uint64 {
		return (&item{tensor: x, off: off, n: pieceSize}).sampled().Key
	}
	x := gradient(7, 3*pieceSize)
	for _, x.Base = range []uint64{0, 9} {
		if a, b, c := key(x, 0), key(x, pieceSize), key(x, 2*pieceSize); a != 7 || a == b || b == c || a == c {
			t.Errorf("base %d: keys %x, %x and %x", x.Base, a, b, c)
		}
	}
	if k := (&item{tensor: x, n: 3 * pieceSize}).sampled().Key; k == key(x, 0) || k == key(x, pieceSize) || k == key(x, 2*pieceSize) {
		t.Errorf("the whole tensor has key %x, as a piece has", k)
	}
	x.Role, x.Base = tensor.State, 9
	if k := key(x, pieceSize); k != 7 {
		t.Errorf("a piece of weights has key %x", k)
	}
}
