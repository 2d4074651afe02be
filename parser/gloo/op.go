package gloo

import (
	"math"

	"github.com/gradproxy/gradproxy/parser/internal/cursor"
)

// An opcode is the purpose of an op (gloo/transport/tcp/pair.h, struct Op).
type opcode uint8

const (
	sendBuffer        opcode = iota // payload for a buffer registered under a slot (object-style algorithms)
	sendUnboundBuffer               // payload that a notifyRecvReady has invited
	notifySendReady                 // the sender has length bytes
	notifyRecvReady                 // the receiver has posted room for length bytes
)

// payload reports whether length bytes follow the preamble.
func (o opcode) payload() bool { return o <= sendUnboundBuffer }

// An op is a preamble: six little-endian 64-bit integers.
type op struct {
	code   opcode
	slot   slot
	length int // bytes: of the payload, or of the transfer that is announced
}

// preambleLen is the length of an op without its payload, in bytes.
const preambleLen = 48

// parseOp reads the preamble at the start of b, which holds preambleLen bytes or more. It reports false if these bytes
// are no preamble: the fields repeat each other, which is all the proof that the protocol offers.
func parseOp(b []byte) (op, bool) {
	c := cursor.New(b[:preambleLen])
	nbytes, code, sl := c.Uint64(), c.Uint64(), c.Uint64()
	offset, length, roffset := c.Uint64(), c.Uint64(), c.Uint64()
	switch {
	case !c.OK(), code > uint64(notifyRecvReady), length > math.MaxInt64-preambleLen:
		return op{}, false
	case code != uint64(sendBuffer) && offset|roffset != 0:
		return op{}, false
	}
	want := uint64(preambleLen)
	if opcode(code).payload() {
		want += length
	}
	return op{opcode(code), slot(sl), int(length)}, nbytes == want
}

// A slot names the transfer: kind, tag and delta of a collective (gloo/types.h, class Slot), or all 64 bits the
// user's tag of a point-to-point message.
type slot uint64

// A kind is the collective operation that a slot names.
type kind uint8

const (
	pointToPoint kind = 0x00
	allGather    kind = 0x02
	allReduce    kind = 0x04
	broadcast    kind = 0x06
)

func (s slot) kind() kind  { return kind(s >> 56) }
func (s slot) tag() uint32 { return uint32(s >> 24) }
