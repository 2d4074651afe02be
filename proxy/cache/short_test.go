package cache

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// A difference with mostly zero elements, as an embedding's, travels without the codes of zeros to a peer that takes
// such values, and the same value arrives as from the encoding with them, which a peer of an earlier version gets.
func TestShortValues(t *testing.T) {
	const n, steps, old, knows = 1 << 14, 6, 0, 1
	for _, text := range []string{"int8", "int4", "3lc"} {
		codec, err := all.New(text)
		if err != nil {
			t.Fatal(err)
		}
		var lengths [2]int64
		var arrived [2][]byte
		for peer := range lengths {
			a, b := newSides(t, 1<<20)
			r := rand.New(rand.NewPCG(8, 9))
			w := weights(r, n)
			for step := range steps {
				for i := range n / 100 {
					at := 4 * (1000*step + i) // a row of the table
					binary.LittleEndian.PutUint32(w[at:], math.Float32bits(float32(r.NormFloat64())))
				}
				ref, wire := a.putLossy(t, codec, w, peer == knows)
				if step > 0 {
					lengths[peer] += wire
				}
				if arrived[peer], err = b.take(ref); err != nil {
					t.Fatal(err)
				}
			}
			if b.metrics.wrong > 0 {
				t.Errorf("%s: %d wrong references", text, b.metrics.wrong)
			}
			if same := bytes.Equal(arrived[peer], w); same {
				t.Errorf("%s: nothing was lost, so that nothing was coded", text)
			}
		}
		if !bytes.Equal(arrived[old], arrived[knows]) {
			t.Errorf("%s: other values arrive without the codes of zeros", text)
		}
		_, _, fills := codecs.FillOf(codec)
		t.Logf("%s: %d bytes, to a peer of an earlier version %d", text, lengths[knows], lengths[old])
		if fills != (lengths[knows] < lengths[old]/4) || !fills && lengths[knows] != lengths[old] {
			t.Errorf("%s: %d bytes, to a peer of an earlier version %d", text, lengths[knows], lengths[old])
		}
	}
}

// putLossy puts a value of one tensor that may lose something, and returns the bytes that it took on the value stream.
func (s *side) putLossy(t *testing.T, c codecs.Codec, value []byte, short bool) (frame.ValueRef, int64) {
	t.Helper()
	tt := tensor.Tensor{Key: 1, Base: 1, DType: tensor.Float32, Size: len(value), Role: tensor.State}
	record, _ := s.tensors.Of(tensors.Origin{}, policy.Flow{}, tt)
	before := s.wire()
	r, _, ok := s.peer.Put(s.tag, Put{Decl: frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: len(value) / 4, Key: 1, Base: 1}, Data: value,
		Choice: policy.Choice{Codec: c, Closed: true}, Role: tensor.State, Short: short, Observe: record})
	if !ok {
		t.Fatal("the value was not put")
	}
	s.peer.mu.Lock()
	w := s.peer.writer
	s.peer.mu.Unlock()
	if err := w.pipe.Wait(); err != nil {
		t.Fatal(err)
	}
	return r, s.wire() - before
}

// wire returns the bytes that the tensor has taken so far.
func (s *side) wire() int64 {
	var sum int64
	for _, x := range s.tensors.List() {
		sum += x.WireBytes
	}
	return sum
}
