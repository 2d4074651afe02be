package gloosim

import (
	"encoding/binary"
	"fmt"
)

// An opcode is the kind of an op (transport/tcp/pair.h, Op::Opcode).
type opcode uint64

const (
	sendUnboundBuffer opcode = 1 + iota // 0, SEND_BUFFER, is of older algorithms that torch does not use
	notifySendReady
	notifyRecvReady
)

// preambleLen is the length of an op without its payload, in bytes.
const preambleLen = 48

// A preamble is the head of an op, without the fields that follow from the others.
type preamble struct {
	op     opcode
	slot   slotID
	length uint64 // bytes of the transfer; they follow if op is sendUnboundBuffer
}

// appendTo appends the preamble's wire form to b.
func (p preamble) appendTo(b []byte) []byte {
	nbytes := uint64(preambleLen)
	if p.op == sendUnboundBuffer {
		nbytes += p.length
	}
	for _, v := range [...]uint64{nbytes, uint64(p.op), uint64(p.slot), 0, p.length, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// parsePreamble reads a preamble of preambleLen bytes.
func parsePreamble(b []byte) (preamble, error) {
	var v [6]uint64
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	p := preamble{op: opcode(v[1]), slot: slotID(v[2]), length: v[4]}
	if p.op < sendUnboundBuffer || p.op > notifyRecvReady {
		return p, fmt.Errorf("gloosim: unknown opcode %d", v[1])
	}
	payload := p.length
	if p.op != sendUnboundBuffer {
		payload = 0
	}
	if v[0] != preambleLen+payload || v[3] != 0 || v[5] != 0 {
		return p, fmt.Errorf("gloosim: inconsistent preamble %v", v)
	}
	return p, nil
}

// An Op is a collective operation. Its value is the kind in a slot (types.h).
type Op uint8

const (
	Skip      Op = 0 // a call that fails on every rank: it takes a tag and sends nothing
	AllGather Op = 2
	AllReduce Op = 4
	Broadcast Op = 6
	Barrier   Op = 7
)

// String is the operation's name.
func (o Op) String() string {
	switch o {
	case AllGather:
		return "all-gather"
	case AllReduce:
		return "all-reduce"
	case Broadcast:
		return "broadcast"
	case Barrier:
		return "barrier"
	}
	return fmt.Sprintf("kind %d", uint8(o))
}

// A slotID names the messages of one collective (types.cc, Slot::build).
type slotID uint64

func slot(o Op, tag uint32) slotID { return slotID(o)<<56 | slotID(tag)<<24 }

func (s slotID) String() string { return fmt.Sprintf("%v %d", Op(s>>56), uint32(s>>24)) }
