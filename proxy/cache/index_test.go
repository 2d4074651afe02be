package cache

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Spans are bytes of values, in their order, for any bytes and any values; a value that was removed has none.
func FuzzCover(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	f.Add(noise, noise[700:4000], uint16(2000), uint16(100))
	f.Add(make([]byte, 3000), make([]byte, 1000), uint16(1500), uint16(1))
	f.Add(bytes.Repeat(noise[:300], 9), noise[:290], uint16(600), uint16(599))
	f.Fuzz(func(t *testing.T, value, piece []byte, split, from uint16) {
		var x index
		first := &entry{raw: value[:min(int(split), len(value))]}
		second := &entry{raw: value[len(first.raw):]}
		for _, e := range []*entry{first, second} {
			e.marks = marksOf(e.raw)
			x.add(e)
		}
		marks := marksOf(piece)
		check := func(spans []span) {
			at := 0
			for _, s := range spans {
				if s.at < at || s.n < minSpan || s.from < 0 || s.from+s.n > len(s.entry.raw) || s.at+s.n > len(piece) ||
					!bytes.Equal(piece[s.at:s.at+s.n], s.entry.raw[s.from:s.from+s.n]) {
					t.Fatalf("span %+v", s)
				}
				at = s.at + s.n
			}
		}
		check(x.cover(piece, marks, place{}))
		check(x.cover(piece, marks, place{first, int(from)}))
		x.remove(first)
		for _, s := range x.cover(piece, marks, place{}) {
			if s.entry == first {
				t.Fatal("a removed value was found")
			}
		}
		if x.remove(second); len(x.marks) > 0 {
			t.Fatalf("%d marks are left", len(x.marks))
		}
	})
}
