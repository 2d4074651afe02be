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

// Masked elements are coded as they are without their mask, and arrive masked as they were: whatever pieces they come in, side by side and between others, where blocks are whole and where they
// leave as they are, and whether or not their tensors have the length of whole masks. To a peer that does not understand masks they travel as they are.
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

// Bytes of a large tensor that are read straight into its block arrive masked as they were.
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
