package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// change changes some values by less than 1, at the beginnings of blocks, so that the test's codec makes the difference
// small.
func change(r *rand.Rand, w []byte) []byte {
	w = bytes.Clone(w)
	for block := 0; block < len(w); block += 4096 {
		for i := block; i < min(block+4*20, len(w)); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(w[i:]))
			binary.LittleEndian.PutUint32(w[i:], math.Float32bits(v+r.Float32()-0.5))
		}
	}
	return w
}

// A client that sends back the model that it was sent, a little changed: the model is new each time and predicts only
// its update, from the second on. All arrives as it was sent.
func TestModelPredictsItsUpdate(t *testing.T) {
	p := newSharingPair(t, 1<<20)
	c, s := p.connect(t)
	r := rand.New(rand.NewPCG(1, 2))
	const rounds = 10
	size := 0
	for range rounds {
		model, _ := weights(r, 10_000)
		size = len(model)
		if got := carry(t, s, c, pathtest.ToyPiece(1, size, model)); !bytes.Equal(got[8:], model) {
			t.Fatal("the model arrived otherwise")
		}
		update := change(r, model)
		if got := carry(t, c, s, pathtest.ToyPiece(1, size, update)); !bytes.Equal(got[8:], update) {
			t.Fatal("the update arrived otherwise")
		}
	}
	waitFor(t, func() bool { return p.near.Tensors()[0].RawBytes == int64(rounds*size) })
	// Without prediction they shrink by a tenth or so.
	if up := p.near.Tensors()[0]; up.WireBytes > int64(2*size+(rounds-2)*size/4) {
		t.Errorf("%d updates of %d bytes became %d on the wire", rounds, size, up.WireBytes)
	}
	if down := p.far.Tensors()[0]; down.WireBytes < int64(rounds*size)*8/10 {
		t.Errorf("%d models of %d bytes became %d on the wire: the test shows nothing", rounds, size, down.WireBytes)
	}
}

// An update may lose something of its difference to the model, also the first one that is coded so.
func TestLossyUpdate(t *testing.T) {
	p := newSharingPair(t, 1<<20, policy.Rule{Direction: new(policy.FromClient), Roles: []tensor.Role{tensor.State}, Codec: "halves"})
	c, s := p.connect(t)
	r := rand.New(rand.NewPCG(3, 4))
	lost := 0
	for i := range 10 {
		if i == 1 { // from here on the model predicts its update
			waitFor(t, func() bool { return p.near.values().Stats().Kept == 3 }) // blocks
		}
		model, _ := weights(r, 3000)
		if got := carry(t, s, c, pathtest.ToyPiece(1, len(model), model)); !bytes.Equal(got[8:], model) {
			t.Fatal("the model arrived otherwise")
		}
		update := change(r, model)
		got := carry(t, c, s, pathtest.ToyPiece(1, len(update), update))[8:]
		if !bytes.Equal(got, update) {
			lost++
		}
		for i := 0; i < len(update); i += 4 {
			sent, came := math.Float32frombits(binary.LittleEndian.Uint32(update[i:])), math.Float32frombits(binary.LittleEndian.Uint32(got[i:]))
			if math.Abs(float64(sent-came)) > 0.5 {
				t.Fatalf("%g arrived as %g", sent, came)
			}
		}
	}
	if lost != 9 {
		t.Errorf("%d of 9 updates lost something: the test shows nothing", lost)
	}
}

// Both ends send whenever they like, more tensors than there is room for, some much faster than the other side can say
// that they have come: each value arrives as it was sent.
func TestBothDirectionsAtOnce(t *testing.T) {
	p := newSharingPair(t, 256<<10)
	var all sync.WaitGroup
	for seed := range uint64(4) {
		c, s := p.connect(t)
		for way, ends := range [][2]*net.TCPConn{{c, s}, {s, c}} {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(way)))
				for range 150 {
					w, _ := weights(rand.New(rand.NewPCG(5, r.Uint64N(3))), 2000)
					w = change(r, w)
					if got := carry(t, ends[0], ends[1], pathtest.ToyPiece(byte(r.IntN(20)), len(w), w)); !bytes.Equal(got[8:], w) {
						t.Error("other bytes arrived")
						return
					}
				}
			})
		}
	}
	all.Wait()
	reverse := 0
	for _, proxy := range []*Proxy{p.near, p.far} {
		st := proxy.values().Stats()
		if !st.Writing {
			t.Error("a value stream was lost")
		}
		reverse += st.Reverse
		if st.Ahead > 3 {
			t.Errorf("a slot is %d values ahead", st.Ahead)
		}
		if st.Used > st.Room {
			t.Errorf("%d bytes are held where %d have room", st.Used, st.Room)
		}
	}
	if reverse == 0 {
		t.Error("nothing was coded against the other direction: the test shows nothing")
	}
}

// A peer that codes against values that are not kept for it, or has seen values that were not put, loses its value
// stream.
func TestFalseClaimsOfValues(t *testing.T) {
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: 256, Key: 1}
	declare := frame.Frame{Kind: frame.Declare, Body: d.Append(nil)}
	numbers := func(n ...uint64) (b []byte) {
		for _, x := range n {
			b = binary.AppendUvarint(b, x)
		}
		return b
	}
	for name, frames := range map[string][]frame.Frame{
		"a difference to a slot that does not exist": {declare, {Kind: frame.Block, Body: append([]byte{frame.FormReverse}, numbers(1, 7, 0)...)}},
		"a difference to a slot that is not kept":    {declare, {Kind: frame.Block, Body: append([]byte{frame.FormReverse}, numbers(1, 0, 0)...)}},
		"a difference that is cut short":             {declare, {Kind: frame.Block, Body: []byte{frame.FormReverse}}},
		"a value that was not put":                   {{Kind: frame.Seen, Body: numbers(1, 0, 9)}},
		"a slot that was not evicted":                {{Kind: frame.Seen, Body: numbers(1, 0, 0)}},
		"half of a number":                           {{Kind: frame.Seen, Body: []byte{1, 0x80}}},
		"half of a wish":                             {{Kind: frame.Want, Body: []byte{0x80}}},
		"a slot that is kept but was not declared":   {{Kind: frame.Kept, Body: numbers(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSharingPair(t, 1<<20)
			c, s := p.connect(t)
			w, _ := weights(rand.New(rand.NewPCG(7, 8)), 256)
			carry(t, s, c, pathtest.ToyPiece(0, len(w), w)) // the far proxy's slot 0
			stream, err := p.near.config.Open(t.Context(), "far", numbers(frame.OpeningValues, 1<<40))
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool {
				st := p.far.values().Stats()
				return st.StoreEpoch == 1<<40 && st.Writing
			})
			epoch := p.far.values().Stats().WriterEpoch
			for _, f := range frames {
				if f.Kind == frame.Seen || f.Kind == frame.Block {
					f.Body = bytes.Replace(f.Body, []byte{1}, numbers(epoch), 1)
				}
				if _, err := stream.Write(frame.Append(nil, f)); err != nil {
					t.Fatal(err)
				}
			}
			for err == nil {
				_, err = stream.ReadChunk()
			}
			if errors.Is(err, net.ErrClosed) {
				t.Errorf("the stream ends with %v, want a reset", err)
			}
		})
	}
}
