package pslite

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// floats makes a push of one float for each key, without lengths, as ps-lite's own test of pairs of keys and values
// does.
func floats(time int32, keys []uint64) say {
	return say{kind: push, keys: keys, vals: 4 * len(keys), types: [3]byte{typeUint64, typeFloat}, frames: 2, time: time}
}

// If the user says that sums are of gradients, an application's pushes of many floats are gradients, except the first
// that rank 0 sends to a server. Their index is all keys of the message, under one Key for each worker and server,
// whatever the keys are.
func TestListsOfGradients(t *testing.T) {
	n := newNetwork(t, "job")
	n.sums = parser.SumsGradients
	n.announce(9, all())
	type sent struct{ index, vals tensor.Tensor }
	say := func(w *wire, s say) sent {
		t.Helper()
		found := w.all(s)
		if len(found) != 2 || !found[0].Index() || found[1].Index() {
			t.Fatalf("%+v, want an index and values", found)
		}
		return sent{found[0], found[1]}
	}
	to8, to10 := n.connect(9, 8), n.connect(9, 10)
	first := say(to8, floats(1, run(5, 3, 7)))
	if first.vals.Role != tensor.Exact || first.vals.DType != tensor.Float32 {
		t.Errorf("the first push of rank 0 is %+v", first.vals)
	}
	for i, keys := range [][]uint64{run(5, 3, 7), run(6, 1, 90), {4, 9}} {
		got := say(to8, floats(int32(2+i), keys))
		if got.vals.Role != tensor.Gradient || got.vals.Why != tensor.OK || got.vals.Proof != tensor.ByUser || got.vals.Size != 4*len(keys) || got.vals.DType != tensor.Float32 {
			t.Errorf("values are %+v", got.vals)
		}
		if x := got.index; x.Key != first.index.Key || x.Size != 8*len(keys) || x.Role != tensor.Exact || x.DType != tensor.Uint64 || got.vals.Keys != x.Key {
			t.Errorf("the index of %+v is %+v, the first was %+v", got.vals, x, first.index)
		}
		if i > 0 && got.vals.Key == first.vals.Key {
			t.Error("other keys have one Key")
		}
	}
	if got := say(to10, floats(1, run(5, 3, 7))); got.index.Key == first.index.Key {
		t.Error("the keys of two servers have one Key")
	}
	other := n.connect(11, 8)
	if got := say(other, floats(1, run(5, 3, 7))); got.index.Key == first.index.Key || got.vals.Role != tensor.Gradient {
		t.Errorf("the first push of another worker is %+v, its index %+v", got.vals, got.index)
	}
	if got := say(other, floats(1, run(5, 3, 7))); got.vals.Role != tensor.Exact {
		t.Errorf("a push that is sent again is %+v", got.vals)
	}
}

// Keys that come again have a base, others have not.
func TestListsThatComeAgain(t *testing.T) {
	n := newNetwork(t, "job")
	n.sums = parser.SumsGradients
	w := n.connect(9, 8)
	var same, others tensor.Tensor
	for i := range int32(6) {
		same = w.all(floats(1+i, run(1, 1, 50)))[0]
	}
	for i := range int32(12) {
		others = w.all(floats(20+i, run(uint64(i), 7, 50)))[0]
	}
	if same.Base == 0 || others.Base != 0 {
		t.Errorf("the base of keys that come again is %#x, of others %#x", same.Base, others.Base)
	}
}

// A push is not known if the user has said nothing, if it has lengths, no floats, another length than its keys imply,
// or only one key.
func TestListsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		sums parser.Sums
		s    say
	}{
		"sums are not known": {parser.SumsProved, floats(2, run(1, 1, 40))},
		"lengths":            {parser.SumsGradients, listed(push, 2, run(1, 1, 40))},
		"a pull":             {parser.SumsGradients, listed(pull, 2, run(1, 1, 40))},
		"an answer":          {parser.SumsGradients, floats(2, run(1, 1, 40)).with(func(s *say) { s.kind = answer })},
		"integers":           {parser.SumsGradients, floats(2, run(1, 1, 40)).with(func(s *say) { s.types[1] = 3 })},
		"odd values":         {parser.SumsGradients, floats(2, run(1, 1, 40)).with(func(s *say) { s.vals = 100 })},
		"one key":            {parser.SumsGradients, floats(2, run(1, 1, 1))},
	} {
		n := newNetwork(t, name)
		n.sums = c.sums
		w := n.connect(9, 8)
		if c.s.kind == answer {
			w = n.connect(8, 9)
		}
		w.send(parser.Client, floats(1, run(1, 1, 40)).bytes())
		for _, x := range w.all(c.s) {
			if x.Role == tensor.Gradient || x.Keys != 0 && !x.Index() {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
}
