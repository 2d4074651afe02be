package pslitesim

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Unset is the value of an int32 of a Meta that is not set (Meta::kEmpty).
const Unset = math.MaxInt32

// A Meta is the first frame of a message: PBMeta of src/meta.proto, with the fields that Van::PackMeta sets, in the
// order of their numbers. Fields that are not listed as optional are always there.
type Meta struct {
	Head       int32    // 1; of control messages Unset
	Body       []byte   // 2; optional
	Control    *Control // 3; optional
	Request    bool     // 4
	Push       bool     // 5
	SimpleApp  bool     // 6
	AppID      int32    // 7; left out if Unset
	Timestamp  int32    // 8; left out if Unset
	DataTypes  []int32  // 9; of the frames that follow, left out if there are none
	CustomerID int32    // 10
	Pull       bool     // 12
	Priority   int32    // 13
}

// A Control makes a message a control message.
type Control struct {
	Command      int32      // 1
	Nodes        []NodeInfo // 2
	BarrierGroup int32      // 3; in barriers only
	Signature    uint64     // 4; in acknowledgements only
}

// A Role is a node's part in its job.
type Role int32

const (
	Server Role = iota
	Worker
	Scheduler
)

func (r Role) String() string {
	switch r {
	case Server:
		return "server"
	case Worker:
		return "worker"
	case Scheduler:
		return "scheduler"
	}
	return fmt.Sprintf("role %d", int32(r))
}

// A NodeInfo is a node as ADD_NODE and HEARTBEAT tell it.
type NodeInfo struct {
	Role       Role   // 1
	ID         int32  // 2; Unset before the scheduler has given one
	Hostname   string // 3
	Port       int32  // 4
	Recovery   bool   // 5
	CustomerID int32  // 10
}

// Commands of control messages (Control::Command in ps/internal/message.h).
const (
	Terminate = 1
	AddNode   = 2
	Barrier   = 3
	Ack       = 4
	Heartbeat = 5
)

// Types of data frames (DataType in ps/internal/message.h).
const (
	TypeInt32  = 3
	TypeUint64 = 8
	TypeOther  = 11 // C++'s char: the values of MXNet, of any type
)

// errMeta is wrapped by ParseMeta's errors.
var errMeta = errors.New("pslitesim: malformed meta")

// Append appends m's encoding to b.
func (m *Meta) Append(b []byte) []byte {
	b = appendInt(b, 1, m.Head)
	if len(m.Body) > 0 {
		b = appendBytes(b, 2, m.Body)
	}
	if m.Control != nil {
		b = appendBytes(b, 3, m.Control.append(nil))
	}
	b = appendBool(b, 4, m.Request)
	b = appendBool(b, 5, m.Push)
	b = appendBool(b, 6, m.SimpleApp)
	if m.AppID != Unset {
		b = appendInt(b, 7, m.AppID)
	}
	if m.Timestamp != Unset {
		b = appendInt(b, 8, m.Timestamp)
	}
	if len(m.DataTypes) > 0 {
		var packed []byte
		for _, t := range m.DataTypes {
			packed = protowire.AppendVarint(packed, uint64(int64(t)))
		}
		b = appendBytes(b, 9, packed)
	}
	b = appendInt(b, 10, m.CustomerID)
	b = appendBool(b, 12, m.Pull)
	return appendInt(b, 13, m.Priority)
}

func (c *Control) append(b []byte) []byte {
	b = appendInt(b, 1, c.Command)
	for i := range c.Nodes {
		b = appendBytes(b, 2, c.Nodes[i].append(nil))
	}
	switch c.Command {
	case Barrier:
		b = appendInt(b, 3, c.BarrierGroup)
	case Ack:
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), c.Signature)
	}
	return b
}

func (n *NodeInfo) append(b []byte) []byte {
	b = appendInt(b, 1, int32(n.Role))
	b = appendInt(b, 2, n.ID)
	b = appendBytes(b, 3, []byte(n.Hostname))
	b = appendInt(b, 4, n.Port)
	b = appendBool(b, 5, n.Recovery)
	return appendInt(b, 10, n.CustomerID)
}

func appendInt(b []byte, field protowire.Number, v int32) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(int64(v)))
}

func appendBool(b []byte, field protowire.Number, v bool) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), protowire.EncodeBool(v))
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// ParseMeta reads the encoding that Append made. Fields that it does not know it skips, as protocol buffers do. The
// Meta refers to b.
func ParseMeta(b []byte) (m Meta, err error) {
	m.AppID, m.Timestamp = Unset, Unset
	tellsPull := false // not before 2019, when each message but pushes was a pull
	err = fields(b, func(f field) error {
		switch f.number {
		case 1:
			m.Head = f.int32()
		case 2:
			m.Body = f.bytes
		case 3:
			c, err := parseControl(f.bytes)
			m.Control = &c
			return err
		case 4:
			m.Request = f.bool()
		case 5:
			m.Push = f.bool()
		case 6:
			m.SimpleApp = f.bool()
		case 7:
			m.AppID = f.int32()
		case 8:
			m.Timestamp = f.int32()
		case 9:
			m.DataTypes, err = f.packed()
			return err
		case 10:
			m.CustomerID = f.int32()
		case 12:
			m.Pull, tellsPull = f.bool(), true
		case 13:
			m.Priority = f.int32()
		}
		return nil
	})
	if !tellsPull {
		m.Pull = !m.Push && !m.SimpleApp && m.Control == nil
	}
	return m, err
}

func parseControl(b []byte) (c Control, err error) {
	err = fields(b, func(f field) error {
		switch f.number {
		case 1:
			c.Command = f.int32()
		case 2:
			n, err := parseNode(f.bytes)
			c.Nodes = append(c.Nodes, n)
			return err
		case 3:
			c.BarrierGroup = f.int32()
		case 4:
			c.Signature = f.value
		}
		return nil
	})
	return c, err
}

func parseNode(b []byte) (n NodeInfo, err error) {
	err = fields(b, func(f field) error {
		switch f.number {
		case 1:
			n.Role = Role(f.int32())
		case 2:
			n.ID = f.int32()
		case 3:
			n.Hostname = string(f.bytes)
		case 4:
			n.Port = f.int32()
		case 5:
			n.Recovery = f.bool()
		case 10:
			n.CustomerID = f.int32()
		}
		return nil
	})
	return n, err
}

// A field as it is on the wire.
type field struct {
	number protowire.Number
	value  uint64 // of a varint
	bytes  []byte // of the length-delimited ones
}

func (f field) int32() int32 { return int32(f.value) }
func (f field) bool() bool   { return f.value != 0 }

// packed returns the varints in a field.
func (f field) packed() (values []int32, err error) {
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, fmt.Errorf("%w: field %d: %w", errMeta, f.number, protowire.ParseError(n))
		}
		values = append(values, int32(v))
		b = b[n:]
	}
	return values, nil
}

// fields gives all fields of b to visit, until one has an error.
func fields(b []byte, visit func(field) error) error {
	for len(b) > 0 {
		var f field
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMeta, protowire.ParseError(n))
		}
		f.number, b = number, b[n:]
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("%w: field %d has wire type %d", errMeta, number, kind)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", errMeta, number, protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}
