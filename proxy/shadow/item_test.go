package shadow

import (
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// Trials remember by key, so that each piece has its own; weights, which are remembered by their base, keep theirs.
func TestPiecesHaveKeysOfTheirOwn(t *testing.T) {
	key := func(x tensor.Tensor, off int) uint64 {
		return (&item{tensor: x, off: off, n: pieceSize}).sampled().Key
	}
	x := gradient(7, 3*pieceSize)
	if a, b, c := key(x, 0), key(x, pieceSize), key(x, 2*pieceSize); a != 7 || a == b || b == c || a == c {
		t.Errorf("keys %x, %x and %x", a, b, c)
	}
	x.Role, x.Base = tensor.State, 9
	if k := key(x, pieceSize); k != 7 {
		t.Errorf("a piece of weights has key %x", k)
	}
}
