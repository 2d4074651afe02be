package cache

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// putParts puts bytes at an offset of tensor key by their content.
func (s *side) putParts(t frame.Tag, key uint64, off int, b []byte, cuts ...int) ([]frame.Part, bool) {
	record, _ := s.tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: key, Size: len(b)})
	return s.peer.PutParts(t, Put{Decl: frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: len(b) / 4, Key: key, Base: key, Off: off}, Data: b,
		Choice: policy.Choice{Codec: s.lossless}, Observe: record, Own: key + 1<<32}, cuts)
}

// takeParts returns the bytes of parts as the other side's connection delivers them.
func (s *side) takeParts(t *testing.T, on frame.Tag, parts []frame.Part) (got []byte) {
	t.Helper()
	for _, p := range parts {
		if p.Value.ID == 0 {
			got = append(got, p.Literal...)
			continue
		}
		b, err := s.takeOn(on, p.Value)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[p.From:p.From+p.N]...)
	}
	return got
}

// Any piece of bytes that the peer holds is parts of values, whatever tensor, offset and connection it comes with, and though later values have taken the values'
// place; and no part goes beyond a cut.
func TestPiecesAreFoundByTheirContent(t *testing.T) {
	a, b := newSides(t, 4<<20)
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		v := make([]byte, n)
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		return v
	}
	var all []byte
	for i := range 4 {
		v := random(64 << 10)
		all = append(all, v...)
		parts, ok := a.putParts(a.tag, 1, 0, v) // each takes the place of the one before
		if !ok || len(parts) != 1 || !bytes.Equal(b.takeParts(t, b.tag, parts), v) {
			t.Fatalf("value %d: %d parts, %v", i, len(parts), ok)
		}
	}
	before, tag := a.peer.Stats(), frame.Tag{Number: 7, Mine: true}
	for range 200 {
		from := r.IntN(len(all) - 9000)
		piece := all[from : from+8192+r.IntN(800)]
		cut := 1 + r.IntN(len(piece)-1)
		parts, ok := a.putParts(tag, 2+r.Uint64N(3), 4*r.IntN(100), piece, cut)
		if !ok {
			t.Fatal("a piece of held bytes was not found")
		}
		if got := b.takeParts(t, frame.Tag{Number: 7}, parts); !bytes.Equal(got, piece) {
			t.Fatal("the parts are other bytes")
		}
		at, literal := 0, 0
		ends := []int{}
		for _, p := range parts {
			if at += p.N; p.Value.ID == 0 {
				literal += p.N
			}
			ends = append(ends, at)
		}
		if !slices.Contains(ends, cut) || literal > minSpan {
			t.Fatalf("parts end at %v, not at %d, and %d bytes of them are literal", ends, cut, literal)
		}
	}
	if used := a.peer.Stats().Used - before.Used; used > 16<<10 {
		t.Errorf("%d bytes were put for pieces of held bytes", used)
	}
}

// Values that are kept for their content give way to others: the room is never exceeded, and the peer follows.
func TestRetiredValuesGiveWay(t *testing.T) {
	const room = 256 << 10
	a, b := newSides(t, room)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		v := weights(r, 4<<10)
		parts, ok := a.putParts(a.tag, uint64(1+i%3), 0, v)
		if !ok {
			continue // until the peer has said what was delivered
		}
		if got := b.takeParts(t, b.tag, parts); !bytes.Equal(got, v) {
			t.Fatal("other bytes arrive")
		}
		if st := a.peer.Stats(); st.Used > room {
			t.Fatalf("%d bytes are held where %d have room", st.Used, room)
		}
	}
	a.peer.check(t, room)
	waitFor(t, func() bool { return a.peer.Stats().Pending == 0 })
	if st := b.peer.Stats(); !st.Storing || st.Stored > room {
		t.Errorf("the peer holds %d bytes of %d", st.Stored, room)
	}
}
