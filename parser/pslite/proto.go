package pslite

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The Protocol Buffers of dmlc/ps-lite, src/meta.proto. A meta with an unknown field or wire type is not understood:
// its other fields could have another meaning.

// eachField calls f for the fields of b in order: with a varint's value, or with the bytes of a length-delimited one,
// which share b's memory. It reports false if b is no message of such fields, or f does.
func eachField(b []byte, f func(number protowire.Number, typ protowire.Type, v uint64, data []byte) bool) bool {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			return false
		}
		if n < 0 || !f(number, typ, v, data) {
			return false
		}
		b = b[n:]
	}
	return true
}

// parseProto reads PBMeta. Every meta begins with its head.
func parseProto(b []byte) (m meta, ok bool) {
	if len(b) == 0 || b[0] != byte(protowire.EncodeTag(1, protowire.VarintType)) {
		return m, false
	}
	m.app, m.customer, m.timestamp = unset, unset, unset
	pulls := false // the field is there: since 2019
	ok = eachField(b, func(number protowire.Number, typ protowire.Type, v uint64, data []byte) bool {
		if delimited := number == 2 || number == 3 || number == 9; delimited != (typ == protowire.BytesType) {
			return false
		}
		switch number {
		case 1:
			m.head = int32(v)
		case 2, 11, 13: // body, data_size, priority
		case 3:
			return m.parseControl(data)
		case 4:
			m.request = v == 1
		case 5:
			m.push = v == 1
		case 6:
			m.simple = v == 1
		case 7:
			m.app = int32(v)
		case 8:
			m.timestamp = int32(v)
		case 9:
			return m.parseTypes(data)
		case 10:
			m.customer = int32(v)
		case 12:
			m.pull, pulls = v == 1, true
		default:
			return false
		}
		flag := number >= 4 && number <= 6 || number == 12
		return !flag || v <= 1
	})
	if !pulls {
		m.pull = !m.push
	}
	return m, ok
}

// parseTypes reads the packed list of data types.
func (m *meta) parseTypes(b []byte) bool {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 || !m.setType(m.frames, v) {
			return false
		}
		b = b[n:]
	}
	return true
}

// parseControl reads PBControl.
func (m *meta) parseControl(b []byte) bool {
	ok := eachField(b, func(number protowire.Number, typ protowire.Type, v uint64, data []byte) bool {
		if number < 1 || number > 4 || (number == 2) != (typ == protowire.BytesType) {
			return false
		}
		switch number {
		case 1:
			m.command = int32(v)
		case 2:
			n, ok := parseNode(data)
			if !ok {
				return false
			}
			if len(m.nodes) <= maxNodes {
				m.nodes = append(m.nodes, n)
			}
		}
		return true
	})
	return ok && m.command > 0
}

// parseNode reads PBNode.
func parseNode(b []byte) (n node, ok bool) {
	ok = eachField(b, func(number protowire.Number, typ protowire.Type, v uint64, data []byte) bool {
		if (number == 3) != (typ == protowire.BytesType) {
			return false
		}
		switch number {
		case 1, 10: // role, customer_id
		case 2:
			if v < unset {
				n.id = int(v)
			}
		case 3:
			n.host = string(data[:min(len(data), maxHost)])
		case 4:
			n.port = int(min(v, math.MaxUint16+1))
		case 5:
			n.recovery = v != 0
		default:
			return false
		}
		return true
	})
	return n, ok
}

// maxHost is the length of the longest host name (RFC 1035, 2.3.4), in bytes.
const maxHost = 255
