package codectest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/integration/require"
)

// Damaged encodings are ErrCorrupt or decode to some elements, and never take much memory.
func (s suite) corrupt(t *testing.T) {
	const n = 1500
	dst := make([]byte, n*s.dtype.Size())
	decode := func(src []byte) error {
		_, d := s.pair(t, n)
		err := d.Decode(dst, src)
		if err != nil && !errors.Is(err, codecs.ErrCorrupt) {
			t.Fatalf("Decode of damaged bytes: %v, which is not an ErrCorrupt", err)
		}
		return err
	}
	encodings := s.encodings(t, n)
	broken := damaged(rand.New(rand.NewPCG(1, uint64(s.dtype))), encodings)
	decode(nil) // fills pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range broken {
		decode(b)
	}
	runtime.ReadMemStats(&after)
	if mean := (after.TotalAlloc - before.TotalAlloc) / uint64(len(broken)); mean > 16*uint64(len(dst))+(64<<10) {
		t.Errorf("damaged encodings of %d bytes took %d bytes of memory each", len(dst), mean)
	}
	for _, b := range encodings {
		if decode(append(bytes.Clone(b), 0)) == nil && decode(nil) == nil {
			t.Error("an empty encoding and one that is too long are both accepted")
		}
	}
}

// encodings returns the encodings of n elements of each kind of data that is suited.
func (s suite) encodings(t *testing.T, n int) (all [][]byte) {
	for _, k := range Kinds() {
		e, _ := s.pair(t, n)
		if b, err := e.Append(nil, k.Fill(s.dtype, n, 7)); err == nil {
			all = append(all, b)
		}
	}
	return all
}

// damaged returns encodings that are cut short, encodings with flipped bits, and random bytes.
func damaged(r *rand.Rand, encodings [][]byte) (all [][]byte) {
	times := 50
	if require.Race {
		times = 5
	}
	for _, b := range encodings {
		for range times {
			all = append(all, b[:r.IntN(len(b))])
			flipped := bytes.Clone(b)
			for range 1 + r.IntN(3) {
				flipped[r.IntN(min(len(b), 1<<r.IntN(20)))] ^= 1 << r.IntN(8)
			}
			all = append(all, flipped)
		}
	}
	for range 200 {
		junk := make([]byte, r.IntN(200))
		for i := range junk {
			junk[i] = byte(r.Uint32() >> r.IntN(24))
		}
		all = append(all, junk)
	}
	return all
}
