package skcompress

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

// Every pair comes back, in every mode, and lists and map deliver the same.
func TestPairs(t *testing.T) {
	own, values := drawnPairs(1, 20_000, 0.05)
	for i := 0; i < len(values); i += 7 {
		values[i] = 0
	}
	var before []float32
	for _, mode := range []Mode{Auto, Sparse, Dense} {
		p, err := NewPairs(Config{Q: 128, R: 4, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := p.Append(nil, own, values)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %.2f bytes a pair", p, float64(len(encoded))/float64(len(own)))
		gotKeys, got := make([]uint64, len(own)), make([]float32, len(own))
		if err := p.Decode(gotKeys, got, encoded); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(gotKeys, own) {
			t.Errorf("%v: other keys", p)
		}
		for i, v := range values {
			if v*got[i] < 0 || (v == 0) != (got[i] == 0) {
				t.Fatalf("%v: %v is restored as %v", p, v, got[i])
			}
		}
		if before != nil && !slices.Equal(got, before) {
			t.Errorf("%v: other values than in another mode", p)
		}
		before = got
	}
}

// Section 7.2 has a tenth of 12 bytes a pair, where 10 % of all keys occur. Keys drawn at random, and normal values, which are
// all different, are harder than those of a training: 9x.
func TestMessageSize(t *testing.T) {
	own, values := drawnPairs(2, 100_000, 0.1)
	p, err := NewPairs(Config{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := p.Append(nil, own, values)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := 12 * float64(len(own)) / float64(len(encoded)); ratio < 8.5 {
		t.Errorf("messages shrink by %.2f", ratio)
	}
}

func TestPairsThatAreNone(t *testing.T) {
	p, err := NewPairs(Config{Q: 4})
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		keys   []uint64
		values []float32
	}{
		"a NaN":           {[]uint64{1, 2}, []float32{1, nan}},
		"an infinity":     {[]uint64{1, 2}, []float32{-nan / 0x1p-149, float32(math.Inf(-1))}},
		"equal keys":      {[]uint64{2, 2}, []float32{1, 1}},
		"descending keys": {[]uint64{2, 1}, []float32{0, 0}},
	} {
		if got, err := p.Append([]byte{5}, c.keys, c.values); !errors.Is(err, codecs.ErrUnsuited) || len(got) != 1 {
			t.Errorf("%s: %x, %v; want ErrUnsuited", name, got, err)
		}
	}
	if got, err := p.Append(nil, nil, nil); err != nil || len(got) != 0 {
		t.Errorf("no pairs are %x, %v", got, err)
	}
	if err := p.Decode(nil, nil, nil); err != nil {
		t.Error(err)
	}
	if err := p.Decode(nil, nil, []byte{0}); !errors.Is(err, codecs.ErrCorrupt) {
		t.Errorf("a byte for no pairs: %v", err)
	}
}

// Each way in which pairs can be broken that blocks cannot.
func TestCorruptPairs(t *testing.T) {
	p, err := NewPairs(Config{Q: 2, R: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Two values of 1: form, salt, one bucket, its mean; then lists of 0 and 1 with interval 4: 0b000_0011_0 is a key of 3.
	head := []byte{formLists, 0, 0, 1, 0, 0, 0x80, 0x3f}
	one := func(key byte) []byte { return []byte{1, 2, key << 1} }
	for name, c := range map[string]struct {
		lists [][]byte
		ok    bool
	}{
		"a list each":      {[][]byte{one(4), one(3)}, true},
		"a key in both":    {[][]byte{one(3), one(3)}, false},
		"a key too few":    {[][]byte{{0}, one(3)}, false},
		"a key too many":   {[][]byte{{3, 2, 0x02, 0x04, 0x08}, one(3)}, false},
		"no list of zeros": {[][]byte{one(3)}, false},
	} {
		src := slices.Clone(head)
		for _, l := range c.lists {
			src = append(src, l...)
		}
		own, values := make([]uint64, 2), make([]float32, 2)
		err := p.Decode(own, values, append(src, 0))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, codecs.ErrCorrupt) {
			t.Errorf("%s: %d, %v, %v", name, own, values, err)
		}
		if c.ok && (!slices.Equal(own, []uint64{3, 4}) || !slices.Equal(values, []float32{1, 0})) {
			t.Errorf("%s: %d, %v", name, own, values)
		}
	}
}
