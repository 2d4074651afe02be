package send

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// interleaved returns a stream of the toy protocol in which the pieces of n tensors of size bytes alternate.
func interleaved(r *rand.Rand, n, size, piece int) (stream []byte) {
	values := make([][]byte, n)
	for id := range values {
		values[id] = pathtest.Random(r, size)
	}
	for off := 0; off < size; off += piece {
		for id, v := range values {
			stream = append(stream, pathtest.ToyPiece(byte(id), size, v[off:min(size, off+piece)])...)
		}
	}
	return stream
}

// Tensors that interleave in one stream, as HTTP/2 has them, are coded where their keys are distinct: their blocks
// leave in one group. With equal keys, and with Key 0, which no parser may give such tensors, they throw each other
// out, so that they travel verbatim; but every byte arrives.
func TestInterleavedTensors(t *testing.T) {
	const size, piece, tensors = 48 << 10, 5 << 10, 3
	for name, c := range map[string]struct {
		toy   pathtest.Toy
		coded bool
	}{
		"distinct keys": {pathtest.Toy{Flow: true}, true},
		"one key":       {pathtest.Toy{Flow: true, OneKey: true}, false},
		"Key 0":         {pathtest.Toy{Flow: true, Unnamed: true}, false},
	} {
		for seed := range uint64(4) {
			stream := interleaved(rand.New(rand.NewPCG(seed, 5)), tensors, size, piece)
			s := newTestSender(t, c.toy, policy.Rule{Codec: "wide"})
			for b := stream; len(b) > 0; {
				n := min(len(b), 7000)
				if err := s.takes(b[:n]); err != nil {
					t.Fatal(err)
				}
				b = b[n:]
			}
			if got := s.delivered(t); !bytes.Equal(got, stream) {
				t.Errorf("%s: %d bytes arrive of %d, or they differ", name, len(got), len(stream))
			}
			frames := kinds(t, s.sink.Sent())
			if c.coded && (frames[frame.Gather] != 1 || frames[frame.Block] != tensors) {
				t.Errorf("%s: frames %v, want the blocks of %d tensors in one gather", name, frames, tensors)
			}
			if !c.coded && frames[frame.Block] >= tensors {
				t.Errorf("%s: frames %v: tensors that cannot be told apart were coded", name, frames)
			}
			pathtest.Whole(t, s.env)
		}
	}
}

// Blocks of tensors that interleave begin before other tensors' blocks are whole. Their group ends all the same, long
// before the sender has to stop for an answer, and most of their bytes are coded.
func TestInterleavedGroupsEnd(t *testing.T) {
	const size, piece, tensors = 4 << 20, 5001, 3
	stream := interleaved(rand.New(rand.NewPCG(6, 7)), tensors, size, piece)
	s := newTestSender(t, pathtest.Toy{Flow: true}, policy.Rule{Codec: "lossless"})
	waiting := 0
	for b := stream; len(b) > 0; {
		n := min(len(b), 7000)
		if err := s.takes(b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
		waiting = max(waiting, s.cut.group.total)
	}
	if got := s.delivered(t); !bytes.Equal(got, stream) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(stream))
	}
	frames := kinds(t, s.sink.Sent())
	c, err := s.env.Codecs("lossless")
	if err != nil {
		t.Fatal(err)
	}
	blocks := tensors * size / c.Block(size)
	if waiting > maxInterleaved+tensors*c.Block(size) || frames[frame.Gather] < 4 || 10*frames[frame.Block] < 6*blocks {
		t.Errorf("%d bytes wait together; of %d blocks %d are coded, in %d gathers", waiting, blocks, frames[frame.Block], frames[frame.Gather])
	}
	t.Logf("%d bytes wait together; of %d blocks %d are coded, in %d gathers", waiting, blocks, frames[frame.Block], frames[frame.Gather])
	pathtest.Whole(t, s.env)
}

// A block is cut at fixed offsets, whatever pieces its bytes come in, and leaves once it is whole.
func TestBlocksAreCutAtFixedOffsets(t *testing.T) {
	const size = 20_000 // four blocks of 4096 and the rest
	stream := pathtest.ToyPiece(1, size, make([]byte, size))
	for _, piece := range []int{1 << 20, 5000, 4096, 999} {
		s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "lossless"})
		for b := stream; len(b) > 0; {
			n := min(len(b), piece)
			if err := s.takes(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		if s.cut.group.open != 0 || len(s.cut.cuts) != 0 {
			t.Errorf("pieces of %d: a block waits though all bytes have come", piece)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := kinds(t, s.sink.Sent())[frame.Block]; n != 5 {
			t.Errorf("pieces of %d: %d blocks, want 5", piece, n)
		}
		if got := s.delivered(t); !bytes.Equal(got, stream) {
			t.Errorf("pieces of %d: other bytes arrive", piece)
		}
		pathtest.Whole(t, s.env)
	}
}

// A tensor whose rest never comes is sent verbatim as soon as its key begins anew, and so are the bytes that waited
// behind it.
func TestTensorThatBeginsAnew(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{Flow: true, OneKey: true}, policy.Rule{Codec: "wide"})
	cut := pathtest.ToyPiece(1, 8000, make([]byte, 3000))
	whole := pathtest.ToyPiece(2, 6000, make([]byte, 6000))
	if err := s.takes(append(cut, whole...)); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, append(cut, whole...)) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(cut)+len(whole))
	}
	if n := kinds(t, s.sink.Sent())[frame.Block]; n != 1 {
		t.Errorf("%d blocks, want that of the tensor that is whole", n)
	}
	pathtest.Whole(t, s.env)
}

// A tensor whose first bytes were not seen travels verbatim, and so does a tensor where too many tensors are under way.
func TestTensorsUnderWayAreBounded(t *testing.T) {
	const piece, size = 4, 8000
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	take := func(x tensor.Tensor) {
		t.Helper()
		if err := s.cut.tensor(x, make([]byte, frame.MaxHeader+piece), nil); err != nil {
			t.Fatal(err)
		}
	}
	x := tensor.Tensor{Role: tensor.Gradient, DType: tensor.Float32, Size: size}
	for key := range uint64(maxCuts + 10) {
		x.Key, x.Off = key+1, piece
		if take(x); len(s.cut.cuts) > int(min(key, maxCuts)) {
			t.Fatalf("tensor %d is under way, and its first bytes were not seen", key)
		}
		x.Off = 0
		if take(x); len(s.cut.cuts) != int(min(key+1, maxCuts)) {
			t.Fatalf("%d tensors are under way after %d, want at most %d", len(s.cut.cuts), key+1, maxCuts)
		}
	}
	if got, want := len(s.delivered(t)), 2*piece*(maxCuts+10); got != want {
		t.Errorf("%d bytes arrive of %d", got, want)
	}
}
