package pslite

import (
	"slices"
	"strings"
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

// Workers that are sent the same values have one base, and keys of their own; other values have another base.
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

// Pushes of different workers share nothing.
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

// Keys have a base, that of the last ones of as many, as long as they come again: at each step, or several times within
// one. Values for them name their keys, and have a base if the keys have one.
func TestKeysThatComeAgain(t *testing.T) {
	n := newNetwork(t, "job")
	n.announce(9, all())
	long, keys := run(1, 2, 100), func(i uint64) []uint64 { return append(run(1, 2, 99), 1000+i) }
	for name, c := range map[string]struct {
		keys         [][]uint64
		index, value string // + has a base
	}{
		"always the same":           {[][]uint64{long, long, long, long}, "++++", "++++"},
		"never the same":            {[][]uint64{keys(1), keys(2), keys(3), keys(4), keys(5)}, "++---", "+----"},
		"first all sorts":           {[][]uint64{keys(1), keys(2), keys(3), long, long, long, long}, "++---++", "+---+++"},
		"two of each":               {[][]uint64{keys(1), keys(1), keys(2), keys(2), keys(3), keys(3), keys(4)}, "+++++++", "+++++++"},
		"three of each":             {[][]uint64{keys(1), keys(1), keys(1), keys(2), keys(2), keys(2), keys(3)}, "+++++++", "+++++++"},
		"other keys for once":       {[][]uint64{long, long, keys(1), long, long}, "+++++", "+++++"},
		"turns of different length": {[][]uint64{long, long[:90], long, long[:90], long, long[:90]}, "++-+++", "+-++++"},
		"few, that are no index":    {[][]uint64{long[:32], long[:32], long[1:32], long[:1], long[:1]}, "", "+++++"},
	} {
		for _, k := range []kind{push, answer} {
			w := newNetwork(t, name).connect(map[kind]int{push: 9, answer: 8}[k], map[kind]int{push: 8, answer: 9}[k])
			var index, value string
			for time, keys := range c.keys {
				for _, v := range w.all(listed(k, int32(time), keys)) {
					has := "-"
					if v.Base != 0 {
						has = "+"
					}
					switch {
					case v.DType == tensor.Uint64:
						index += has
					case v.DType == tensor.Float32:
						value += has
					case v.Base == 0:
						t.Errorf("%s: lengths without a base: %+v", name, v)
					}
					if v.Index() != (v.DType != tensor.Float32) || v.Index() && (v.Role != tensor.Exact || v.Why != tensor.OK) {
						t.Errorf("%s: %+v", name, v)
					}
				}
			}
			want := c.value
			if k == push {
				want = strings.Repeat("-", len(c.keys))
			}
			if index != c.index || value != want {
				t.Errorf("%s, in kind %d: keys %s, values %s; want %s, %s", name, k, index, value, c.index, want)
			}
		}
	}
}

// A worker's pushes, pulls and answers share the bases of keys. All workers share the bases of lengths, and of the
// values that they are sent for the same keys; keys belong to a worker, and may be others every time.
func TestBasesOfKeys(t *testing.T) {
	n := newNetwork(t, "job")
	n.announce(9, all())
	list := run(1, 1, 100)
	first, second := n.connect(9, 8), n.connect(11, 8)
	a, b := first.all(listed(push, 1, list)), second.all(listed(push, 1, list))
	if a[0].Base == b[0].Base || a[0].Key == b[0].Key {
		t.Errorf("two workers' keys are %+v and %+v", a[0], b[0])
	}
	if a[2].Base != b[2].Base || a[2].Key == b[2].Key {
		t.Errorf("two workers' lengths are %+v and %+v", a[2], b[2])
	}
	if c := first.all(listed(pull, 2, list)); c[0].Base != a[0].Base {
		t.Errorf("keys of a pull are %+v, of a push %+v", c[0], a[0])
	}
	if c := n.connect(8, 9).all(listed(answer, 2, list)); c[0].Base != a[0].Base {
		t.Errorf("keys of an answer are %+v, of a push %+v", c[0], a[0])
	}
	if c := first.all(listed(push, 3, list[:99])); c[0].Base == a[0].Base || c[2].Base == a[2].Base || c[0].Key != a[0].Key {
		t.Errorf("fewer keys are %+v, and their lengths %+v", c[0], c[2])
	}
	if c := first.all(listed(push, 4, run(2, 1, 100))); c[0].Base == a[0].Base || c[0].Key == a[0].Key {
		t.Errorf("keys of another first one are %+v", c[0])
	}
	a, b = n.connect(8, 9).all(listed(answer, 1, list)), n.connect(8, 11).all(listed(answer, 1, list))
	if a[1].Base != b[1].Base || a[1].Key == b[1].Key || a[1].Base == 0 {
		t.Errorf("two workers are sent %+v and %+v", a[1], b[1])
	}
	if c := n.connect(8, 11).all(listed(answer, 2, append(run(1, 1, 99), 170))); c[1].Base == a[1].Base {
		t.Errorf("what is sent for other keys has base %x too", c[1].Base)
	}
}

// Keys that no node sends, of an unknown type, or of no whole number are no index.
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

// The memory of keys is bounded; an index that was forgotten begins again.
func TestForgottenIndices(t *testing.T) {
	n := newNetwork(t, "job")
	n.protocol.facts.init()
	n.protocol.facts.limits.indices = 100
	w := n.connect(9, 8)
	for i := range uint64(4) {
		w.all(sparse(1, 5, 6+i))
	}
	for k := range uint64(300) {
		w.all(listed(push, int32(2+k), []uint64{1000 + k, 2000 + k}))
	}
	if f := &n.protocol.facts; f.indices.Len() > f.limits.indices {
		t.Errorf("%d are remembered", f.indices.Len())
	}
	if found := w.all(sparse(400, 5, 6)); found[0].Base == 0 {
		t.Error("a forgotten index does not begin again")
	}
}
