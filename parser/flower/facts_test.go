package flower

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

// A peer that tells facts without end has its own forgotten, and none of another peer's, whatever jobs they are of.
func TestFloodOfAPeerForgetsNothingOfOthers(t *testing.T) {
	var f facts
	tokyo := mix.Scope{Peer: 1, Job: 1}
	f.put(objectKey{scope: tokyo}, place{array: 7})
	f.putType(arrayKey{tokyo, 7}, tensor.Float32)
	for i := range uint64(2 * maxPlaces) {
		flood := mix.Scope{Peer: 2, Job: i % 100}
		f.put(objectKey{flood, objectID{byte(i), byte(i >> 8), byte(i >> 16)}}, place{array: i})
		f.putType(arrayKey{flood, i}, tensor.Float64)
	}
	if f.places.Len() != maxPlaces || f.types.Len() != maxTypes {
		t.Errorf("%d places and %d types, want the limits, or the flood is none", f.places.Len(), f.types.Len())
	}
	if p, ok := f.place(objectKey{scope: tokyo}); !ok || p.array != 7 {
		t.Error("the place of the other peer's object is forgotten")
	}
	if d, _ := f.typeOf(arrayKey{tokyo, 7}); d != tensor.Float32 {
		t.Error("the type of the other peer's array is forgotten")
	}
}
