package pslite

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
	"github.com/gradproxy/gradproxy/tensor"
)

// The bytes of ps-lite's nodes are those of package pslitesim, which a test there compares with recorded ones. This
// file writes two things by hand, since no node of the simulation does: frames with flags that libzmq does not set in a
// message, and BytePS's dialect (pack, and the name before an answer).

// hello returns a greeting and READY.
func hello(minor byte, socket, identity string) []byte {
	return zmtp.Hello(zmtp.Socket{Type: socket, Identity: identity, Minor: minor})
}

// zframe returns a frame with any flags. A long body makes it LONG, as in libzmq.
func zframe(flags byte, body []byte) []byte {
	if len(body) > 255 {
		flags |= 2
	}
	b := []byte{flags}
	if flags&2 != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, byte(len(body)))
	}
	return append(b, body...)
}

// multipart returns a message of these frames.
func multipart(frames ...[]byte) []byte { return zmtp.AppendMessage(nil, frames...) }

// appendInt appends a field of an int32, sign-extended to 64 bits as Protocol Buffers do.
func appendInt(b []byte, number protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
}

func appendBytes(b []byte, number protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// proto returns a meta of dmlc/ps-lite.
func (m meta) proto() []byte {
	x := sim.Meta{Head: m.head, Request: m.request, Push: m.push, Pull: m.pull, SimpleApp: m.simple, AppID: m.app, CustomerID: m.customer,
		Timestamp: m.timestamp, Priority: -3}
	if m.command != 0 {
		x.Control = &sim.Control{Command: int32(m.command)}
		for _, n := range m.nodes {
			x.Control.Nodes = append(x.Control.Nodes,
				sim.NodeInfo{Role: sim.Role(n.role()), ID: int32(n.id), Hostname: n.host, Port: int32(n.port), Recovery: n.recovery})
		}
	}
	for _, t := range m.types[:m.frames] {
		x.DataTypes = append(x.DataTypes, int32(t))
	}
	return x.Append(nil)
}

func (n node) role() int {
	switch {
	case n.id == scheduler:
		return int(sim.Scheduler)
	case worker(n.id):
		return int(sim.Worker)
	}
	return int(sim.Server)
}

// pack returns a meta of BytePS.
func (m meta) pack(p packing) []byte {
	b := make([]byte, p.size+4*m.frames+p.node*len(m.nodes))
	put := func(at int, v int) { binary.LittleEndian.PutUint32(b[at:], uint32(v)) }
	put(0, int(m.head))
	put(8, int(m.command))
	put(12, len(m.nodes))
	put(36, int(m.app))
	put(40, int(m.timestamp))
	put(44, m.frames)
	put(p.customer, int(m.customer))
	b[32], b[p.customer+4], b[p.customer+5] = byte(bit(m.request)), byte(bit(m.push)), byte(bit(m.simple))
	at := p.size
	for _, t := range m.types[:m.frames] {
		put(at, int(t))
		at += 4
	}
	for _, n := range m.nodes {
		put(at, n.role())
		put(at+4, n.id)
		copy(b[at+8:at+72], n.host)
		put(at+p.port, n.port)
		b[at+p.recovery] = byte(bit(n.recovery))
		at += p.node
	}
	return b
}

// The types of the data frames of MXNet and BytePS: keys, vals, lens.
var conventional = [3]byte{typeUint64, typeOther, 3}

// A say is a message with data, or a command, as MXNet's or BytePS's nodes send it.
type say struct {
	kind     kind
	head     int32
	time     int32
	customer int32
	keys     []uint64
	vals     int   // bytes
	lens     []int // nil: vals
	types    [3]byte
	packed   bool
	back     string // BytePS: the server's name before an answer
	pulls    bool   // of a push: it is a push-pull
	frames   int    // 0: 3, and 2 for a pull
}

// bytes returns the message on the wire.
func (s say) bytes() []byte {
	m := meta{head: s.head, customer: s.customer, timestamp: s.time, types: conventional}
	m.frames = 3
	switch s.kind {
	case push:
		m.request, m.push, m.pull = true, true, s.pulls
	case pull:
		m.request, m.pull, m.frames = true, true, 2
	case answer:
		m.pull, m.push = true, s.pulls
	case ack:
		m.push, m.frames = true, 0
	case command:
		m.request, m.simple, m.frames = true, true, 0
	}
	if s.types != [3]byte{} {
		m.types = s.types
	}
	if s.frames != 0 {
		m.frames = s.frames
	}
	frames := [][]byte{m.proto()}
	if s.packed {
		frames[0] = m.pack(packings[0])
	}
	if s.back != "" {
		frames = append([][]byte{[]byte(s.back)}, frames...)
	}
	if m.frames > 0 {
		var keys, lens []byte
		for _, k := range s.keys {
			keys = binary.LittleEndian.AppendUint64(keys, k)
		}
		for _, n := range append(s.lens, s.vals)[:max(1, len(s.lens))] {
			lens = binary.LittleEndian.AppendUint32(lens, uint32(n))
		}
		frames = append(frames, keys, make([]byte, s.vals), lens)
		frames = frames[:len(frames)-3+m.frames]
	}
	return multipart(frames...)
}

// tableOf returns the scheduler's table of nodes, or the news of one.
func tableOf(packed bool, nodes ...node) []byte {
	m := meta{head: unset, command: addNode, nodes: nodes}
	if packed {
		return multipart(m.pack(packings[0]))
	}
	return multipart(m.proto())
}

// A network is a job's connections at one proxy.
type network struct {
	t        testing.TB
	protocol *Protocol
	job      string
	peer     string
	own      parser.Side // the end of its connections that is at this site
	sums     parser.Sums // that the job's configuration says
	numbers  int
}

// A wire is one connection.
type wire struct {
	t       testing.TB
	parsers [2]parser.Parser
	err     [2]error
}

func newNetwork(t testing.TB, job string) *network {
	return &network{t: t, protocol: new(Protocol), job: job}
}

// Addresses: the host 10.0.0.id, where the node listens on port 4000 + id.
func addressOf(id int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), uint16(4000+id))
}

func nodeOf(id int) node {
	a := addressOf(id)
	return node{id: id, host: a.Addr().String(), port: int(a.Port())}
}

// connect makes the connection of node from to node to, with its handshakes.
func (n *network) connect(from, to int) *wire { return n.connectTo(from, addressOf(to)) }

func (n *network) connectTo(from int, listener netip.AddrPort) *wire {
	n.t.Helper()
	n.numbers++
	client := netip.AddrPortFrom(addressOf(from).Addr(), uint16(50000+n.numbers))
	w := &wire{t: n.t}
	w.parsers[0], w.parsers[1] = n.protocol.New(parser.Conn{Job: n.job, Peer: n.peer, Client: client, Server: listener, Number: n.numbers, Sums: n.sums, Own: n.own})
	w.send(parser.Server, hello(0, "ROUTER", ""))
	w.send(parser.Client, hello(0, "DEALER", "ps"+strconv.Itoa(from)))
	return w
}

// send gives bytes to the parser of a side and returns the tensors in them.
func (w *wire) send(side parser.Side, b []byte) (found []tensor.Tensor) {
	w.t.Helper()
	for len(b) > 0 && w.err[side] == nil {
		seg, err := w.parsers[side].Next(b)
		if err != nil {
			w.err[side] = err
			return found
		}
		if seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
			found = append(found, seg.Tensor)
		}
		b = b[seg.Len:]
	}
	return found
}

// say sends a message of the client's, or an answer of BytePS, and returns its tensor.
func (w *wire) say(s say) tensor.Tensor {
	w.t.Helper()
	side := parser.Client
	if s.back != "" {
		side = parser.Server
	}
	found := w.send(side, s.bytes())
	if w.err[side] != nil {
		w.t.Fatalf("%+v: %v", s, w.err[side])
	}
	found = slices.DeleteFunc(found, tensor.Tensor.Index)
	if len(found) != min(1, s.vals) {
		w.t.Fatalf("%+v: %d tensors", s, len(found))
	}
	if len(found) == 0 {
		return tensor.Tensor{}
	}
	return found[0]
}
