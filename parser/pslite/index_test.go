package pslite

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// all returns all tensors of a message of the client's.
func (w *wire) all(s say) []tensor.Tensor {
	w.t.Helper()
	found := w.send(parser.Client, s.bytes())
	if w.err[0] != nil {
		w.t.Fatalf("%+v: %v", s, w.err[0])
	}
	return found
}

// Workers that are sent the same have one base, and keys of their own; what differs otherwise has another base.
func TestAnswersShareABase(t *testing.T) {
	for _, optimizer := range []bool{false, true} {
		n := newNetwork(t, "job")
		n.announce(9, all())
		if optimizer {
			n.connect(9, 8).say(say{kind: command, head: 0})
		}
		first, second := n.connect(8, 9).say(pulled), n.connect(8, 11).say(pulled)
		if first.Base == 0 || first.Base != second.Base || first.Key == second.Key || first.Base == first.Key {
			t.Errorf("optimizer %v: keys %x and %x of bases %x and %x", optimizer, first.Key, second.Key, first.Base, second.Base)
		}
		if again := n.connect(8, 9).say(pulled.with(func(s *say) { s.pulls = true })); again.Base != first.Base {
			t.Errorf("again base %x, want %x", again.Base, first.Base)
		}
		for name, other := range map[string]tensor.Tensor{
			"another array":      n.connect(8, 9).say(pulled.with(func(s *say) { s.keys = []uint64{4} })),
			"another server's":   n.connect(10, 9).say(pulled.with(func(s *say) { s.keys = []uint64{1<<63 + 2} })),
			"another customer's": n.connect(8, 9).say(pulled.with(func(s *say) { s.customer = 1 })),
		} {
			if other.Base == first.Base || other.Base == 0 {
				t.Errorf("%s has base %x, as %x", name, other.Base, first.Base)
			}
		}
		elsewhere := newNetwork(t, "other")
		elsewhere.announce(9, all())
		if other := elsewhere.connect(8, 9).say(pulled); other.Base == first.Base {
			t.Error("two jobs share a base")
		}
	}
}

// In BytePS answers return on the workers' own connections, and are the same too; so are a compressor's codes.
func TestAnswersOfBytePSShareABase(t *testing.T) {
	n := newNetwork(t, "job")
	first, second := n.connect(9, 8), n.connect(11, 8)
	back := of(5, 0).with(func(s *say) { s.kind, s.packed, s.back = answer, true, "ps8" })
	for range 2 {
		a, b := first.say(back), second.say(back)
		if a.Base == 0 || a.Base != b.Base || a.Key == b.Key {
			t.Errorf("keys %x and %x of bases %x and %x", a.Key, b.Key, a.Base, b.Base)
		}
		first.say(say{kind: push, head: 3, keys: []uint64{5}, vals: 33, packed: true, time: 1})
	}
}

// What workers push is their own.
func TestPushesHaveNoBase(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(9, 8)
	for time := range int32(4) {
		for _, s := range []say{of(3, 10*time), {kind: push, head: 1, keys: []uint64{7, 8, 10}, vals: 96, lens: []int{0, 48, 48}, time: 10*time + 1}} {
			if p := w.say(s); p.Base != 0 {
				t.Errorf("%+v has base %x", p, p.Base)
			}
		}
	}
}

// sparse makes a push of rows of array 7, each of 48 bytes.
func sparse(time int32, rows ...uint64) say {
	s := say{kind: push, head: 1, keys: []uint64{7}, lens: []int{0}, time: time}
	for _, r := range rows {
		s.keys, s.lens, s.vals = append(s.keys, 7+r), append(s.lens, 48), s.vals+48
	}
	return s
}

// The keys of rows come before the rows as an exact index under one key, however many there are, that the rows name.
func TestRowsNameTheirKeys(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(9, 8)
	w.all(sparse(1, 0, 1, 2, 3))
	var index uint64
	for time, rows := range [][]uint64{{2}, {1, 3}, {0, 1, 2, 3}} {
		found := w.all(sparse(int32(2+time), rows...))
		if len(found) != 2 {
			t.Fatalf("%d tensors in a push of rows", len(found))
		}
		keys, values := found[0], found[1]
		expect(t, "keys", keys, tensor.Exact, tensor.Uint64)
		expect(t, "rows", values, tensor.Gradient, tensor.Float32)
		if !keys.Index() || values.Index() || values.Keys != keys.Key {
			t.Errorf("the rows %+v are of %x, want %x", values, values.Keys, keys.Key)
		}
		if keys.Size != 8*len(rows) || keys.Hold != keys.Size || keys.Off != 0 || values.Size/(keys.Size/8) != 48 {
			t.Errorf("%d rows: %+v of %+v", len(rows), values, keys)
		}
		if index == 0 {
			index = keys.Key
		}
		if keys.Key != index {
			t.Errorf("the index of %d rows is %x, and was %x", len(rows), keys.Key, index)
		}
	}
	if other := n.connect(11, 8).all(sparse(1, 2)); other[0].Key == index {
		t.Error("two workers' indices are one")
	}
}

// In pieces, an index says where it begins and how much of it follows, and the array's own key is none of it.
func TestPiecesOfAnIndex(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	b := sparse(1, 0, 1, 2, 3).bytes()
	at := 0
	for rest := b; len(rest) > 0; {
		seg, err := w.parsers[0].Next(rest[:1])
		if err != nil {
			t.Fatal(err)
		}
		if v := seg.Tensor; v.Index() {
			if v.Size != 32 || v.Off != at || v.Hold != 32-at {
				t.Fatalf("%+v at %d", v, at)
			}
			if at%8 == 0 && rest[0] != byte(7+at/8) { // rows 0 to 3 of array 7
				t.Fatalf("byte %d is %d", at, rest[0])
			}
			at++
		}
		rest = rest[1:]
	}
	if at != 32 {
		t.Errorf("%d bytes of an index", at)
	}
}

// run returns n keys from first on, step apart.
func run(first, step uint64, n int) (keys []uint64) {
	for i := range uint64(n) {
		keys = append(keys, first+step*i)
	}
	return keys
}

// listed makes a message of many keys, with lengths, as an application of ps-lite's sends it.
func listed(k kind, time int32, keys []uint64) say {
	s := say{kind: k, keys: keys, vals: 8 * len(keys), types: [3]byte{typeUint64, typeFloat, 3}, time: time}
	if k == pull {
		s.vals, s.frames = 0, 2
		return s
	}
	for range keys {
		s.lens = append(s.lens, 2)
	}
	return s
}

func bases(found []tensor.Tensor) (has []bool) {
	for _, v := range found {
		has = append(has, v.Base != 0)
	}
	return has
}

// Keys that come again, of whichever worker and in requests of either kind, have a base, and so have their lengths, and the
// values that are sent back for them. Keys that differ each time have none until they repeat.
func TestKeysThatRepeat(t *testing.T) {
	n := newNetwork(t, "job")
	n.announce(9, all())
	nine, eleven, back := n.connect(9, 8), n.connect(11, 8), n.connect(8, 9)
	long, other := run(1, 2, 100), append(run(1, 2, 99), 1000)
	time := int32(0)
	for i, c := range []struct {
		name string
		on   *wire
		kind kind
		keys []uint64
		want []bool // index, values, lengths
	}{
		{"a first push", nine, push, long, []bool{false, false, false}},
		{"another's pull", eleven, pull, long, []bool{true}},
		{"its push", eleven, push, long, []bool{true, false, true}},
		{"other keys", nine, push, other, []bool{true, false, false}},
		{"others again", nine, push, long, []bool{false, false, false}},
		{"the same again", eleven, push, long, []bool{false, false, true}},
		{"and again", nine, push, long, []bool{true, false, true}},
		{"keys of another first one", nine, push, run(2, 2, 100), []bool{false, false, false}},
		{"fewer keys", nine, push, run(1, 2, 99), []bool{false, false, false}},
		{"an answer", back, answer, long, []bool{false, false, false}},
		{"another answer", n.connect(8, 11), answer, long, []bool{true, true, true}},
		{"few keys", nine, push, run(1, 2, 32), []bool{false}},
		{"few keys again", nine, push, run(1, 2, 32), []bool{false}},
		{"an answer to few", back, answer, run(1, 2, 32), []bool{false}},
		{"an answer to few again", back, answer, run(1, 2, 32), []bool{true}},
		{"an answer to others", back, answer, append(run(1, 2, 31), 77), []bool{false}},
		{"an answer to one", back, answer, run(1, 2, 1), []bool{true}},
	} {
		time++
		found := c.on.all(listed(c.kind, time, c.keys))
		if got := bases(found); !slices.Equal(got, c.want) {
			t.Errorf("%d, %s: bases %v, want %v", i, c.name, got, c.want)
		}
		for _, v := range found {
			if v.Index() != (v.DType != tensor.Float32) || v.Index() && (v.Role != tensor.Exact || v.Why != tensor.OK) {
				t.Errorf("%d, %s: %+v", i, c.name, v)
			}
		}
	}
}

// The bases of keys are those of all workers; their own keys are not.
func TestWorkersShareKeys(t *testing.T) {
	n := newNetwork(t, "job")
	first, second := n.connect(9, 8), n.connect(11, 8)
	keys := run(1, 1, 64)
	first.all(listed(push, 1, keys))
	a, b := first.all(listed(push, 2, keys)), second.all(listed(push, 1, keys))
	for i := range a {
		if a[i].Base != b[i].Base || a[i].Key == b[i].Key {
			t.Errorf("tensor %d: keys %x and %x of bases %x and %x", i, a[i].Key, b[i].Key, a[i].Base, b[i].Base)
		}
	}
	if pulled := second.all(listed(pull, 2, keys)); pulled[0].Base != a[0].Base || pulled[0].Key == b[0].Key {
		t.Errorf("a pull's keys are %+v, a push's %+v", pulled[0], b[0])
	}
}

// Keys that nobody sends, of an unknown type, or of no whole number are no index.
func TestNoIndex(t *testing.T) {
	n := newNetwork(t, "job")
	keys := run(1, 1, 64)
	for name, found := range map[string][]tensor.Tensor{
		"a push by a server":   n.connect(8, 9).all(listed(push, 1, keys)),
		"keys of another type": n.connect(9, 8).all(listed(push, 1, keys).with(func(s *say) { s.types[0], s.frames = 4, 2 })),
		"lengths of another":   n.connect(9, 8).all(listed(push, 1, run(1, 1, 32)).with(func(s *say) { s.types[2] = 5 })),
	} {
		if slices.ContainsFunc(found, tensor.Tensor.Index) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if lead(&meta{types: conventional, head: 1}, 23) != 0 || lead(&meta{types: conventional, head: 1}, 8) != 0 {
		t.Error("an index of no whole keys")
	}
}

// What is remembered of keys is bounded; what was forgotten begins again.
func TestForgottenIndices(t *testing.T) {
	n := newNetwork(t, "job")
	n.protocol.facts.init()
	n.protocol.facts.indices.limit = 100
	w := n.connect(9, 8)
	w.all(sparse(1, 5, 6))
	for k := range uint64(300) {
		w.all(listed(push, int32(2+k), []uint64{1000 + k, 2000 + k}))
	}
	if f := &n.protocol.facts.indices; len(f.young)+len(f.old) > 200 {
		t.Errorf("%d are remembered", len(f.young)+len(f.old))
	}
	if found := w.all(sparse(400, 5, 6)); found[0].Base != 0 {
		t.Errorf("a forgotten index has base %x", found[0].Base)
	}
}
