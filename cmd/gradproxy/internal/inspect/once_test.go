package inspect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	"github.com/gradproxy/gradproxy/tensor"
)

// modelSize is the bytes of the elements that randomModel makes. They do not compress.
const modelSize = 400_000

// randomModel is a .npy file.
func randomModel(seed uint64) []byte {
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }", modelSize/4)
	text += strings.Repeat(" ", 117-len(text)) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), 0)
	b = append(b, text...)
	r := rand.New(rand.NewPCG(seed, 1))
	for range modelSize {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// within returns v as field path[0] of ... of the last field of path.
func within(v []byte, path ...protowire.Number) []byte {
	for _, n := range path {
		v = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	return v
}

// lossless returns the bytes that the tensors of two connections between two hosts take, whose chunks alternate.
func lossless(t *testing.T, role tensor.Role, chunks ...[]capturetest.Chunk) RoleCost {
	t.Helper()
	var conns []capturetest.Conn
	var all []capturetest.Chunk
	for i, list := range chunks {
		conns = append(conns, capturetest.Conn{Client: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(40_000+i)), Server: netip.MustParseAddrPort("10.0.1.1:8080")})
		for k := range list {
			list[k].Conn = i
		}
	}
	for k := range chunks[0] {
		for _, list := range chunks {
			all = append(all, list[k])
		}
	}
	r, err := Read(bytes.NewReader(capturetest.Write(conns, all)), Config{})
	if err != nil {
		t.Fatal(err)
	}
	return *r.Policies[0].Roles.of(role)
}

// A model that Flower sends to two clients at one site, first to be trained and then to be evaluated, crosses once.
func TestModelForTwoClientsCrossesOnce(t *testing.T) {
	model := randomModel(1)
	client := func() (list []capturetest.Chunk) {
		w := grpctest.New(t)
		id := w.Call("/flwr.proto.FlowerService/Join")
		w.Respond(id)
		for _, kind := range []protowire.Number{4, 5} {
			m := grpctest.Prefixed(within(model, 1, 1, kind))
			for len(m) > 0 {
				n := min(1<<14, len(m))
				w.Data(parser.Server, id, m[:n], false)
				m = m[n:]
			}
		}
		for _, x := range w.Exchange() {
			list = append(list, capturetest.Chunk{From: x.From, Bytes: x.Bytes})
		}
		return list
	}
	got := lossless(t, tensor.State, client(), client())
	if got.RawBytes != 4*modelSize || got.Bytes > modelSize*11/10 || got.Bytes < modelSize/2 {
		t.Errorf("%d bytes of a model four times are %d, want about %d", got.RawBytes, got.Bytes, modelSize)
	}
}

// A chunk that a node of Flower sends again costs nothing, also where another node's comes between.
func TestChunkSentAgainCostsNothing(t *testing.T) {
	node := func(number uint64) (list []capturetest.Chunk) {
		content := func(class, children string, body []byte) (string, []byte) {
			b := append([]byte(fmt.Sprintf("%s %s %d\x00", class, children, len(body))), body...)
			sum := sha256.Sum256(b)
			return hex.EncodeToString(sum[:]), b
		}
		id, chunk := content("ArrayChunk", "", randomModel(number))
		// The tree: message, dictionary, record, array, chunk.
		tree := within([]byte(id), 1)
		for _, name := range []string{"d", "c", "b", "a"} {
			tree = append(within([]byte(strings.Repeat(name, 64)), 1), within(tree, 2)...)
		}
		self := within(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), number), 1)
		say := func(path string, body []byte) {
			head := fmt.Sprintf("POST /v1/fleet/%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, len(body))
			list = append(list, capturetest.Chunk{From: parser.Client, Bytes: append([]byte(head), body...)},
				capturetest.Chunk{From: parser.Server, Bytes: []byte("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")})
		}
		say("push-messages", append(bytes.Clone(self), within(tree, 3)...))
		for range 3 {
			say("push-object", append(append(bytes.Clone(self), within([]byte(id), 3)...), within(chunk, 4)...))
		}
		return list
	}
	got := lossless(t, tensor.Exact, node(5), node(6))
	if got.RawBytes != 6*modelSize || got.Bytes > 2*modelSize*11/10 || got.Bytes < modelSize {
		t.Errorf("%d bytes of two chunks, three times each, are %d, want about %d", got.RawBytes, got.Bytes, 2*modelSize)
	}
}
