package grpcany

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// A peer that tells facts without end has its own forgotten, and none of another peer's, whatever jobs they are of.
func TestFloodOfAPeerForgetsNothingOfOthers(t *testing.T) {
	var f facts
	tokyo := mix.Scope{Peer: 1, Job: 1}
	ours := place{methodKey: methodKey{scope: tokyo, method: 1}}
	f.tried(ours, aLeaf, types{})
	f.leaf(context{place: ours})
	f.number(ours.methodKey)
	for i := range uint64(2 * maxContexts) {
		p := place{methodKey: methodKey{scope: mix.Scope{Peer: 2, Job: i % 100}, method: i}}
		f.leaf(context{place: p})
		f.number(p.methodKey)
	}
	if f.places.Len() != maxPlaces || f.contexts.Len() != maxContexts || f.methods.Len() != maxNumbered {
		t.Errorf("%d places, %d contexts and %d methods, want the limits, or the flood is none", f.places.Len(), f.contexts.Len(), f.methods.Len())
	}
	if f.at(ours).kind != aLeaf || !f.numbered(ours.methodKey) {
		t.Error("the other peer's place or method is forgotten")
	}
	if f.leaf(context{place: ours}); f.at(ours).again != 1 {
		t.Error("the other peer's context is forgotten")
	}
}
