package pslite

import (
	"bytes"
	"encoding/binary"
)

// BytePS's meta is a C structure in the layout of x86-64 (bytedance/ps-lite, src/meta.h), with no number that tells
// which of four layouts it has. All begin alike:
//
//	 0 head   4 body_size   8 control.cmd   12 control.node_size   16 control.barrier_group   24 control.msg_sig
//	32 request (1 byte)   36 app_id   40 timestamp   44 data_type_size
//
// and are followed by the body, the data types (4 bytes each) and the nodes. The size of the whole tells them apart: no
// two of them can have the same for any number of nodes.

// A packing is one layout. Offsets and sizes are in bytes.
type packing struct {
	size     int // of the fixed part
	customer int // offset of customer_id; push and simple_app follow, 1 byte each
	node     int // size of one
	port     int // offset of a node's port
	recovery int // offset of is_recovery
}

var packings = [...]packing{
	{size: 112, customer: 64, node: 552, port: 204, recovery: 464}, // January 2021 and later
	{size: 104, customer: 64, node: 552, port: 204, recovery: 464}, // December 2020: no sid
	{size: 88, customer: 48, node: 168, port: 72, recovery: 76},    // August 2020: no devices
	{size: 88, customer: 48, node: 84, port: 72, recovery: 76},     // January 2020: no endpoint
}

// minPacked is the size of the shortest fixed part.
const minPacked = 88

// packedUnset stands for an integer that has no value in BytePS.
const packedUnset = 1<<15 - 1

// packedCommands is the highest control command.
const packedCommands = 9

// parsePacked reads BytePS's meta.
func parsePacked(b []byte) (m meta, ok bool) {
	if len(b) < minPacked {
		return m, false
	}
	field := func(at int) int32 { return int32(binary.LittleEndian.Uint32(b[at:])) }
	body, nodes, types := int64(field(4)), int64(field(12)), int64(field(44))
	if body < 0 || nodes < 0 || types < 0 || types > int64(len(m.types)) {
		return m, false
	}
	for _, p := range packings {
		if int64(p.size)+body+4*types+int64(p.node)*nodes != int64(len(b)) {
			continue
		}
		m = meta{head: field(0), command: field(8), app: field(36), timestamp: field(40), customer: field(p.customer), packed: true}
		flags := [3]byte{b[32], b[p.customer+4], b[p.customer+5]}
		if flags[0]|flags[1]|flags[2] > 1 || m.command < 0 || m.command > packedCommands {
			return m, false
		}
		m.request, m.push, m.simple = flags[0] == 1, flags[1] == 1, flags[2] == 1
		m.pull = !m.push
		rest := b[p.size+int(body):]
		for i := range int(types) {
			if !m.setType(i, uint64(binary.LittleEndian.Uint32(rest[4*i:]))) {
				return m, false
			}
		}
		if m.command == addNode {
			m.nodes = p.parseNodes(rest[4*types:])
		}
		return m, true
	}
	return m, false
}

// parseNodes reads whole nodes.
func (p packing) parseNodes(b []byte) (nodes []node) {
	for ; len(b) >= p.node && len(nodes) <= maxNodes; b = b[p.node:] {
		host, _, _ := bytes.Cut(b[8:72], []byte{0})
		n := node{host: string(host), port: int(binary.LittleEndian.Uint32(b[p.port:])), recovery: b[p.recovery] != 0}
		if id := binary.LittleEndian.Uint32(b[4:]); id < packedUnset {
			n.id = int(id)
		}
		nodes = append(nodes, n)
	}
	return nodes
}
