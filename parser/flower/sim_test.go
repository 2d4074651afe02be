package flower

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

func fresh() parser.Protocol { return new(Protocol) }

// conn is the connection of a client on host 10.0.0.n.
func conn(n byte) parser.Conn {
	return parser.Conn{Job: "job", Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 40_000), Server: netip.MustParseAddrPort("10.0.1.1:8000")}
}

// npyOf returns a .npy file of n elements of a type with that description.
func npyOf(descr string, size, n int, seed uint64) []byte {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, n)
	text += strings.Repeat(" ", 117-len(text)) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), 0)
	b = append(b, text...)
	r := rand.New(rand.NewPCG(seed, 1))
	for range n * size {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// npyHeader is the length of the header that npyOf writes.
const npyHeader = 128

// field appends a field that has a length.
func field(b []byte, number protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
}

func number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// nested returns v as field path[0] of ... of field path[len-1].
func nested(v []byte, path ...protowire.Number) []byte {
	for _, n := range path {
		v = field(nil, n, v)
	}
	return v
}

// A simObject is an object, with its children.
type simObject struct {
	id       string
	content  []byte
	children []simObject
}

// makeObject makes an object of a class.
func makeObject(class string, body []byte, children ...simObject) simObject {
	var ids []string
	for _, c := range children {
		ids = append(ids, c.id)
	}
	content := append([]byte(fmt.Sprintf("%s %s %d\x00", class, strings.Join(ids, ","), len(body))), body...)
	sum := sha256.Sum256(content)
	return simObject{hex.EncodeToString(sum[:]), content, children}
}

// arrayObject makes the objects of an array, in chunks of n bytes.
func arrayObject(file []byte, n int) simObject {
	var chunks []simObject
	for len(file) > 0 {
		m := min(n, len(file))
		chunks = append(chunks, makeObject("ArrayChunk", file[:m]))
		file = file[m:]
	}
	return makeObject("Array", []byte(`{"stype": "numpy.ndarray"}`), chunks...)
}

// modelObject makes the objects of a message with arrays.
func modelObject(tag string, arrays ...simObject) simObject {
	config := makeObject("ConfigRecord", []byte("config of "+tag))
	return makeObject("Message", []byte(tag), makeObject("RecordDict", []byte(tag), config, makeObject("ArrayRecord", []byte("{}"), arrays...)))
}

// treeOf returns the ObjectTree of an object.
func treeOf(o simObject) []byte {
	b := field(nil, 1, []byte(o.id))
	for _, c := range o.children {
		b = field(b, 2, treeOf(c))
	}
	return b
}

// leavesFirst calls f with all objects of a tree, children first.
func leavesFirst(o simObject, f func(simObject)) {
	for _, c := range o.children {
		leavesFirst(c, f)
	}
	f(o)
}

// post is a request of that body.
func post(path string, body []byte) []byte {
	return append([]byte(fmt.Sprintf("POST /v1/fleet/%s HTTP/1.1\r\nHost: a\r\ncontent-type: application/protobuf\r\nContent-Length: %d\r\n\r\n", path, len(body))), body...)
}

// ok is a response of that body.
func ok(body []byte) []byte {
	return append([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\n\r\n", len(body))), body...)
}

// httpCall is one call.
func httpCall(path string, request, response []byte) parsertest.Exchange {
	return parsertest.Exchange{{From: parser.Client, Bytes: post(path, request)}, {From: parser.Server, Bytes: ok(response)}}
}

// pull is the calls by which a node is sent a message.
func pull(m simObject) (x parsertest.Exchange) {
	metadata := nested(number(nil, 1, 77), 1, 2)
	x = append(x, httpCall("pull-messages", nil, append(metadata, field(nil, 3, treeOf(m))...))...)
	leavesFirst(m, func(o simObject) {
		request := field(number(nested(number(nil, 1, 5), 1), 2, 77), 3, []byte(o.id))
		x = append(x, httpCall("pull-object", request, field(number(number(nil, 1, 1), 2, 1), 3, o.content))...)
	})
	return x
}

// push is the calls by which a node sends a message.
func push(node uint64, m simObject) (x parsertest.Exchange) {
	self := nested(number(nil, 1, node), 1)
	metadata := nested(number(nil, 1, 77), 1, 2)
	x = append(x, httpCall("push-messages", append(append(bytes.Clone(self), metadata...), field(nil, 3, treeOf(m))...), nil)...)
	leavesFirst(m, func(o simObject) { x = append(x, pushOf(node, o)...) })
	return x
}

// pushOf is the call by which a node sends an object.
func pushOf(node uint64, o simObject) parsertest.Exchange {
	self := nested(number(nil, 1, node), 1)
	request := field(field(number(self, 2, 77), 3, []byte(o.id)), 4, o.content)
	return httpCall("push-object", field(request, 5, []byte("session")), number(nil, 1, 1))
}
