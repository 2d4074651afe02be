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

// Masked elements are coded as they are without their mask, and arrive masked as they were: whatever pieces they come
// in, side by side and between others, where blocks are whole and where they leave as they are, and whether or not
// their tensors have the length of whole masks. To a peer that does not understand masks they travel as they are.
func TestMaskedElements(t *testing.T) {
	const size, piece = 10_001, 2503
	mask := tensor.Mask{0x12, 0, 0xfe, 0x9a}
	r := rand.New(rand.NewPCG(5, 5))
	first, second := pathtest.Random(r, size), pathtest.Random(r, size)
	clear(first[size-5000:]) // the codec leaves out trailing zeros
	clear(second[size-5000:])
	var stream []byte
	for at := 0; at < size; at += piece {
		for id, v := range [][]byte{first, second} {
			part := bytes.Clone(v[at:min(size, at+piece)])
			mask.From(at).Apply(part)
			stream = append(stream, pathtest.ToyPiece(byte(id), size, part)...)
		}
	}
	for _, c := range []struct {
		peer  []string
		left  int // bytes of the stream that never come
		coded bool
	}{{nil, 0, true}, {[]string{"lossless", "wide", frame.Masks}, 0, true}, {[]string{"lossless", "wide"}, 0, false}, {nil, 1500, false}} {
		for _, codec := range []string{"lossless", "wide"} {
			for _, step := range []int{7, 1000, 1 << 20} {
				s := newTestSender(t, pathtest.Toy{Flow: true, Mask: mask, DType: tensor.Uint8}, policy.Rule{Codec: codec})
				s.direction.conn.PeerCodecs = c.peer
				sent := stream[:len(stream)-c.left]
				for b := sent; len(b) > 0; {
					n := min(step, len(b))
					if err := s.takes(bytes.Clone(b[:n])); err != nil {
						t.Fatal(err)
					}
					b = b[n:]
				}
				if got := s.delivered(t); !bytes.Equal(got, sent) {
					t.Fatalf("%+v, %s, pieces of %d: %d bytes arrive of %d, or they differ", c, codec, step, len(got), len(sent))
				}
				wire := s.sink.Sent()
				if n := len(wire); c.coded && n > len(sent)-2*4000 || c.peer != nil && !c.coded && kinds(t, wire)[frame.Mask] > 0 {
					t.Errorf("%+v, %s, pieces of %d: %d bytes leave for %d", c, codec, step, n, len(sent))
				}
				pathtest.Whole(t, s.env)
			}
		}
	}
}

// Bytes of a large tensor that direct reads put into its block arrive masked as they were.
func TestMaskedDirectReads(t *testing.T) {
	const size = 1 << 20
	s := newTestSender(t, pathtest.Toy{Mask: tensor.Mask{1, 2, 3, 4}}, policy.Rule{Codec: "wide"})
	var sent []byte
	for i := range 3 {
		v := pathtest.Random(rand.New(rand.NewPCG(1, uint64(i))), size)
		sent = append(sent, pathtest.ToyPiece(1, size, v)...)
	}
	go s.app.Write(sent)
	s.readAll(t, len(sent))
	if got := s.delivered(t); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(sent))
	}
	pathtest.Whole(t, s.env)
}

// Masked tensors that travel as they are, since the peer does not understand masks, are in the table and the metrics,
// with the reason.
func TestMasksThatThePeerLacks(t *testing.T) {
	const size = 16 << 10
	for _, c := range []struct {
		peer []string
		why  tensor.Reason
	}{{[]string{"wide", "lossless"}, tensor.PeerLacks}, {[]string{"wide", "lossless", frame.Masks}, tensor.OK}, {nil, tensor.OK}} {
		seen := &noted{why: map[tensor.Reason]int{}}
		s := newTestSender(t, pathtest.Toy{Mask: tensor.Mask{1, 2, 3, 4}}, policy.Rule{Codec: "wide"})
		s.direction.conn.PeerCodecs, s.env.Metrics = c.peer, seen
		for range 2 {
			if err := s.takes(pathtest.ToyPiece(1, size, make([]byte, size))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		list := s.env.Tensors.List()
		if len(list) != 1 || list[0].Reason != c.why.String() || list[0].RawBytes != 2*size || c.why != tensor.OK && (list[0].WireBytes != 2*size || list[0].Codec != policy.Verbatim) {
			t.Errorf("to %v: the table has %+v, want %v", c.peer, list, c.why)
		}
		if want := 2; (seen.why[tensor.PeerLacks] == want) != (c.why == tensor.PeerLacks) {
			t.Errorf("to %v: %v in the metrics", c.peer, seen.why)
		}
	}
}

// Bytes of another mask are not the next ones of a tensor whose first bytes wait: these leave as they are.
func TestAnotherMaskEndsATensor(t *testing.T) {
	const size = 16 << 10
	first := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: size, Hold: size, Mask: tensor.Mask{1, 2, 3, 4}}
	for _, mask := range []tensor.Mask{first.Mask, {4, 3, 2, 1}, {}} {
		s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
		v := pathtest.Random(rand.New(rand.NewPCG(1, 1)), size)
		rest := first
		rest.Off, rest.Hold, rest.Mask = size/2, size/2, mask
		same := mask == first.Mask
		give := func(x tensor.Tensor, b []byte) {
			if err := s.cut.tensor(x, append(make([]byte, frame.MaxHeader), b...), nil); err != nil {
				t.Fatal(err)
			}
		}
		give(first, v[:size/2])
		if s.cut.direct.isNext(rest) != same {
			t.Errorf("%v continues %v: %v", mask, first.Mask, !same)
		}
		give(rest, v[size/2:])
		if got := s.delivered(t); !bytes.Equal(got, v) {
			t.Errorf("%v: %d bytes arrive of %d, or they differ", mask, len(got), size)
		}
		if k := kinds(t, s.sink.Sent()); (k[frame.Block] > 0) != same {
			t.Errorf("%v: %v leave", mask, k)
		}
		pathtest.Whole(t, s.env)
	}
}
