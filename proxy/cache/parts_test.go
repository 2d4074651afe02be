package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
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
		if part := b[p.From : p.From+p.N]; frame.PartHash(part) != p.Hash {
			t.Error("a part has another hash")
		}
		got = append(got, b[p.From:p.From+p.N]...)
	}
	return got
}

// After a value stream is lost bytes do not go on in a value that it carried, though another value has its number now.
func TestLostValuesAreNotGoneOnWith(t *testing.T) {
	a, b := newSides(t, 4<<20)
	r := rand.New(rand.NewPCG(3, 4))
	lost, other := make([]byte, 64<<10), make([]byte, 64<<10)
	for i := range lost {
		lost[i], other[i] = byte(r.Uint32()), byte(r.Uint32())
	}
	put := func(number, key uint64, v []byte) {
		t.Helper()
		parts, ok := a.putParts(frame.Tag{Number: number, Mine: true}, key, 0, v)
		if !ok || !bytes.Equal(b.takeParts(t, frame.Tag{Number: number}, parts), v) {
			t.Fatalf("%d parts, %v, or other bytes", len(parts), ok)
		}
	}
	put(1, 1, lost)
	put(1, 2, lost[:32<<10]) // ends within the value
	a.peer.mu.Lock()
	w := a.peer.writer
	after := a.peer.conns[a.tag].after
	a.peer.mu.Unlock()
	if after.entry == nil || after.at != 32<<10 {
		t.Fatalf("the connection is not within the value, but at %d", after.at)
	}
	w.stream.Reset(0)
	<-w.dead
	waitFor(t, a.peer.Ready)
	put(7, 1, other)
	put(1, 3, lost[32<<10:])
}

// After a value stream is lost the peer's next one is answered by one of this side, though nobody here has a value to
// put: the peer puts none before. This side may have opened its last one too lately for that, be opening one in vain,
// or lose one meanwhile.
func TestLaterStreamIsAnswered(t *testing.T) {
	for name, fails := range map[string]int{"too early": 0, "refused": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newSides(t, 4<<20)
			a.peer.mu.Lock()
			w := a.peer.writer
			a.peer.opened = time.Now()
			a.peer.mu.Unlock()
			b.peer.mu.Lock()
			b.peer.opened = time.Now()
			if fails == 0 {
				b.peer.opened = b.peer.opened.Add(openEvery / 2)
			}
			open := b.config.Open
			b.config.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
				if fails--; fails >= 0 {
					return nil, tunnel.ErrPeerDown
				}
				return open(ctx, peer, opening)
			}
			b.peer.mu.Unlock()
			w.stream.Reset(0)
			<-w.dead
			waitFor(t, a.peer.Ready)
		})
	}
}

// Values that are dropped are kept in memory by no connection that ended within them.
func TestDroppedValuesAreNotKept(t *testing.T) {
	a, b := newSides(t, 256<<10)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 20 {
		v := make([]byte, 64<<10)
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		tag := frame.Tag{Number: uint64(10 + i), Mine: true}
		for j, piece := range [][]byte{v, v[:32<<10]} {
			parts, ok := a.putParts(tag, uint64(1+j), 0, piece)
			if !ok {
				continue // no room: nothing is dropped before the other side says what it has delivered
			}
			b.takeParts(t, frame.Tag{Number: tag.Number}, parts)
		}
	}
	waitFor(t, func() bool { return a.peer.Stats().Pending == 0 })
	a.peer.mu.Lock()
	defer a.peer.mu.Unlock()
	held, following := map[*entry]bool{}, 0
	for _, slot := range a.peer.writer.numbers {
		held[slot.latest] = true
	}
	for _, e := range a.peer.writer.retired.FromOldest() {
		held[e] = true
	}
	for _, c := range a.peer.conns {
		if c.after.entry != nil {
			following++
			if !held[c.after.entry] {
				t.Error("a connection keeps a value that was dropped")
			}
		}
	}
	if following == 0 || following == 20 {
		t.Errorf("%d connections ended within values that are held: the test shows nothing", following)
	}
}

// withGear has the marks be at the same places whenever it runs.
func withGear(t *testing.T, seed uint64) {
	was := gear
	gear = newGear(seed, 1)
	t.Cleanup(func() { gear = was })
}

// Any piece of bytes that the peer holds is parts of values, whatever tensor, offset and connection it comes with, and
// though later values have taken the values' place; and no part goes beyond a cut. Only bytes without a mark are put
// anew: the piece's end in a value, if the value begins or ends there.
func TestPiecesAreFoundByTheirContent(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withGear(t, seed)
			findPieces(t)
		})
	}
}

func findPieces(t *testing.T) {
	const values, size = 4, 64 << 10
	a, b := newSides(t, 4<<20)
	r := rand.New(rand.NewPCG(1, 2))
	var all []byte
	marked := map[mark]bool{} // the values' marks, at their places in all
	for i := range values {
		v := make([]byte, size)
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		for _, m := range marksOf(v) {
			marked[mark{m.hash, len(all) + m.at}] = true
		}
		all = append(all, v...)
		parts, ok := a.putParts(a.tag, 1, 0, v) // each takes the place of the one before
		if !ok || len(parts) != 1 || !bytes.Equal(b.takeParts(t, b.tag, parts), v) {
			t.Fatalf("value %d: %d parts, %v", i, len(parts), ok)
		}
	}
	before, tag, last := a.peer.Stats(), frame.Tag{Number: 7, Mine: true}, uint64(values)
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
		at, literal, put, newest := 0, 0, 0, last
		ends := []int{}
		for _, p := range parts {
			switch at += p.N; {
			case p.Value.ID == 0:
				literal += p.N
			case p.Value.ID > last:
				put += p.N
				newest = max(newest, p.Value.ID)
			}
			ends = append(ends, at)
		}
		last = newest
		if !slices.Contains(ends, cut) || literal > minSpan {
			t.Fatalf("parts end at %v, not at %d, and %d bytes of them are literal", ends, cut, literal)
		}
		// The bytes of each value in the piece that have no mark at a place which is one of the value's marks too.
		bare := map[int]int{}
		for i := range piece {
			bare[(from+i)/size]++
		}
		for _, m := range marksOf(piece) {
			if m.at += from; marked[m] && (m.at-markWindow)/size == (m.at-1)/size {
				delete(bare, (m.at-1)/size)
			}
		}
		limit := 0
		for _, n := range bare {
			limit += n + 2*(tensor.Float32.Size()-1) // beside it lie values of whole elements
		}
		if put > limit {
			t.Fatalf("of a piece of %d bytes %d were put, where %d have no mark", len(piece), put, limit)
		}
	}
	waitFor(t, func() bool { return a.peer.Stats().Pending == 0 }) // the other side has said what was delivered, and the room of later values is free
	if used := a.peer.Stats().Used - before.Used; used > 32<<10 {  // of the pieces' 1.7 MB, and their slots
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
