package cache

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// putFor puts a value of tensor t, with the side's lossless codec.
func (s *side) putFor(on frame.Tag, t tensor.Tensor, value []byte) (frame.ValueRef, bool) {
	record, _ := s.tensors.Of(tensors.Origin{}, policy.Flow{}, t)
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: len(value) / 4, Key: t.Base, Base: t.Base}
	if t.Model != 0 {
		d.Base = t.Model
	}
	r, _, ok := s.peer.Put(on, Put{Decl: d, Data: value, Choice: policy.Choice{Codec: s.lossless}, Role: t.Role, Observe: record, Answered: t.Answered})
	return r, ok
}

// A model predicts the results of all clients that it was sent to, from the first round on, though results are tensors
// of their own, of one client or of two that cannot be told apart; the next model is a difference to the last one.
func TestModelPredictsAllResults(t *testing.T) {
	const rounds, clients = 3, 4
	server, site := newSides(t, 4<<20)
	r := rand.New(rand.NewPCG(3, 4))
	model := weights(r, 4000)
	carry := func(from, to *side, v tensor.Tensor, value []byte) {
		t.Helper()
		v.DType, v.Size, v.Role = tensor.Float32, len(value), tensor.State
		ref, ok := from.putFor(from.tag, v, value)
		if !ok {
			t.Fatal("a value was not put")
		}
		if got, err := to.take(ref); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("other bytes arrived: %v", err)
		}
	}
	for range rounds {
		model[r.IntN(len(model))]++
		carry(server, site, tensor.Tensor{Key: 1, Base: 1, Answered: true}, model)
		waitFor(t, func() bool { return site.peer.Stats().Kept == 1 })
		for client := range uint64(clients) {
			result := bytes.Clone(model)
			result[r.IntN(len(result))]++
			carry(site, server, tensor.Tensor{Key: 10 + client/2, Base: 10 + client/2, Model: 1}, result)
		}
	}
	if how := site.metrics.how; how["reverse"] != rounds*clients || how["difference"]+how["whole"] != 0 {
		t.Errorf("%v, want all %d results as differences to their models", how, rounds*clients)
	}
	if how := server.metrics.how; how["difference"] != rounds-1 || how["reverse"] != 0 {
		t.Errorf("%v, want %d models as differences to the model before", how, rounds-1)
	}
}

// Content that has a name is found by it where its marks belong to other values by now, and only as far as the bytes
// are the value's: a name that lies costs a value.
func TestNamedContent(t *testing.T) {
	a, b := newSides(t, 4<<20)
	r := rand.New(rand.NewPCG(3, 4))
	value, other := weights(r, 16<<10), weights(r, 16<<10)
	put := func(key, id uint64, v []byte, how string) {
		t.Helper()
		before := a.metrics.how[how]
		record, _ := a.tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: key, Size: len(v)})
		parts, ok := a.peer.PutParts(a.tag, Put{Decl: frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: len(v) / 4, Key: key, Base: key}, Data: v,
			Choice: policy.Choice{Codec: a.lossless}, Observe: record, ID: id}, nil)
		if !ok || !bytes.Equal(b.takeParts(t, b.tag, parts), v) {
			t.Fatalf("%d parts, %v, or other bytes", len(parts), ok)
		}
		if a.metrics.how[how] != before+1 {
			t.Errorf("ID %d: %v, want one more %q", id, a.metrics.how, how)
		}
	}
	put(1, 7, value, "whole")
	put(1, 8, other, "difference") // in the place of the first, which is kept for its content
	a.peer.mu.Lock()
	clear(a.peer.writer.index.marks)
	a.peer.mu.Unlock()
	put(2, 7, value, "again")
	put(3, 7, other[:4<<10], "whole")
	put(4, 9, value[:4<<10], "whole")
}

// A value that has lost something is the same for a connection that sends it again, where that is wanted; else a closer
// one follows.
func TestLossyValueAgain(t *testing.T) {
	int8, err := all.New("int8")
	if err != nil {
		t.Fatal(err)
	}
	for again, want := range map[bool]int{true: 1, false: 2} {
		a, _ := newSides(t, 4<<20)
		r := rand.New(rand.NewPCG(3, 4))
		if _, ok := a.put(1, weights(r, 1000)); !ok {
			t.Fatal("a value was not put")
		}
		v := weights(r, 1000)
		record, _ := a.tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: 1, Base: 1, DType: tensor.Float32, Size: len(v), Role: tensor.State})
		for range 2 {
			if _, _, ok := a.peer.Put(a.tag, Put{Decl: frame.Declaration{Codec: "int8", DType: tensor.Float32, N: 1000, Key: 1, Base: 1}, Data: v,
				Choice: policy.Choice{Codec: int8, Closed: true}, Role: tensor.State, Observe: record, Again: again}); !ok {
				t.Fatal("a value was not put")
			}
		}
		if got := a.metrics.how["difference"]; got != want {
			t.Errorf("again is wanted: %v; %d differences were put, want %d", again, got, want)
		}
		a.peer.mu.Lock()
		for _, slot := range a.peer.writer.slots.FromNewest() {
			if n := len(slot.latest.served); n > 1 {
				t.Errorf("again is wanted: %v; %d connections are remembered of a value that one has sent", again, n)
			}
		}
		a.peer.mu.Unlock()
	}
}
