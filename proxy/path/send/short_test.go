package send

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Only a peer that has said that it understands the short form gets it. A peer of an earlier version has the same
// values in longer blocks.
func TestShortBlocksNeedThePeersWord(t *testing.T) {
	const size = 1 << 14
	r := rand.New(rand.NewPCG(7, 7))
	var sent []byte
	for range 6 {
		v := gradient(r, size/4)
		clear(v[size/2:])
		sent = append(sent, pathtest.ToyPiece(1, size, v)...)
	}
	var lengths []int
	var arrived [][]byte
	for _, peer := range [][]string{{"lossless", "int8", coder.Short}, {"lossless", "int8"}} {
		s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByCall}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"})
		s.direction.conn.PeerCodecs = peer
		if err := s.takes(bytes.Clone(sent)); err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, s.delivered(t))
		short, coded := 0, 0
		eachFrame(t, s.sink.Sent(), func(f frame.Frame) {
			switch {
			case f.Kind != frame.Block:
			case f.Body[0] == frame.FormShort:
				short++
			case f.Body[0] == frame.FormCoded:
				coded++
			}
		})
		if knows := len(peer) == 3; knows != (short > 0) || !knows && coded == 0 {
			t.Errorf("a peer with %v gets %d short blocks and %d others", peer, short, coded)
		}
		lengths = append(lengths, len(s.sink.Sent()))
		pathtest.Whole(t, s.env)
	}
	if !bytes.Equal(arrived[0], arrived[1]) || bytes.Equal(arrived[0], sent) {
		t.Error("other values arrive at a peer of an earlier version, or nothing was lost")
	}
	if lengths[0] > 3*lengths[1]/4 {
		t.Errorf("%d bytes leave with short blocks, and %d without", lengths[0], lengths[1])
	}
}
