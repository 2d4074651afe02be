package pslite

import (
	"math/rand/v2"
	"testing"
)

// Keys and lengths are read alike however they are cut.
func TestFramesInPieces(t *testing.T) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, seed))
	for _, n := range []int{1, 2, 3, 4, 100} {
		frame := make([]byte, 8*n)
		for i := range frame {
			frame[i] = byte(rnd.IntN(100)) // no length is negative
		}
		var whole keys
		whole.begin()
		whole.add(frame)
		var sum lens
		sum.add(frame)
		for range 50 {
			var k keys
			var l lens
			k.begin()
			for rest := frame; len(rest) > 0; {
				cut := 1 + rnd.IntN(len(rest))
				k.add(rest[:cut])
				l.add(rest[:cut])
				rest = rest[cut:]
			}
			if k.bytes != len(frame) || k.sum() != whole.sum() || k.first != whole.first {
				t.Fatalf("%d keys in pieces: %+v, want %+v", n, k, whole)
			}
			if l.sum != sum.sum || l.bad != sum.bad || l.parts != sum.parts {
				t.Fatalf("%d lengths in pieces: %+v, want %+v", 2*n, l, sum)
			}
		}
	}
}

// Another order or set of keys has another sum.
func TestKeysDiffer(t *testing.T) {
	sums := map[uint64]string{}
	for _, s := range []string{"aaaaaaaa", "bbbbbbbb", "aaaaaaaabbbbbbbb", "bbbbbbbbaaaaaaaa", "aaaaaaaabbbbbbbbcccccccc", "aaaaaaaabbbbbbbbdddddddd"} {
		var k keys
		k.begin()
		k.add([]byte(s))
		if sums[k.sum()] != "" {
			t.Errorf("%s and %s", s, sums[k.sum()])
		}
		sums[k.sum()] = s
	}
}

func TestLens(t *testing.T) {
	for _, c := range []struct {
		lens        []byte
		size, width int
		want        bool
	}{
		{[]byte{40, 0, 0, 0}, 40, 4, true},
		{[]byte{10, 0, 0, 0}, 40, 4, true},
		{[]byte{0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0}, 40, 4, true},
		{[]byte{39, 0, 0, 0}, 40, 4, false},
		{[]byte{40, 0, 0}, 40, 4, false},
		{[]byte{40, 0, 0, 0, 0}, 40, 4, false},
		{nil, 40, 4, false},
		{[]byte{255, 255, 255, 255, 41, 0, 0, 0}, 40, 4, false}, // -1
	} {
		var l lens
		l.add(c.lens)
		if l.agrees(c.size, c.width) != c.want {
			t.Errorf("% x are the lengths of %d bytes by %d: %v", c.lens, c.size, c.width, !c.want)
		}
	}
}
