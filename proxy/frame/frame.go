// Package frame is the layout of the bytes that two proxies exchange on the streams of a tunnel: frames, their bodies,
// and the opening of a stream. It writes and reads bytes and knows none of the path.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Frame is the unit in which two proxies talk on one tunnel.Stream, which carries one connection's bytes in order,
// with backpressure, and sees no frames.
//
// On the wire, integers being unsigned varints (encoding/binary) unless said otherwise:
//
//	frame   = kind(1 byte) [slot] length body        slot: in Declare and Block only
//	Bytes   = opaque bytes, as they are
//	Declare = codec text, dtype(1 byte), n [job, key(8), off, base(8), keys(8)]  texts: length, bytes; fixed-width integers little-endian;
//	                                             nothing after n where all of it is empty or 0
//	Block   = form(1 byte) encoding                  form: FormCoded, FormRaw, FormReverse, FormShort, FormSummed, FormSummedShort
//	Gather  = runs in stream order: 2*n, then n literal bytes; or 2*n+1, b: the next n bytes of the b-th Block that follows
//	Ref     = epoch, number, size: a value that the receiver holds, or soon will; see package cache. In the place of a Block
//	Parts   = 2*n, then n literal bytes; or 2*n+1, epoch, number, size, from, hash: n bytes of such a value, from an offset on; several, in stream order. In the place of a
//	          Block too
//	Mask    = 4 bytes: the bytes of each Block, Ref and Parts that follows are XORed with these in turn, from its first on; all 0: they are not
//	CloseWrite, Reset = empty; nothing follows
//	Rest    = empty; nothing follows on this stream: the connection goes on with the stream that resumes it
//
//	Room, Forget, Evict, Delivered, Want, Kept, Seen: on value streams only, see package cache
//
// A Gather is followed by its Blocks, between which only Declares and Masks stand, and delivers everything at once.
type Frame struct {
	Kind Kind
	Slot uint32 // which Encoder and Decoder; in Declare and Block
	Body []byte // Append does not retain it; Reader.Next names its owner
}

// A Kind tells the frames apart.
type Kind uint8

const (
	Bytes      Kind = iota + 1 // opaque bytes of the connection
	Declare                    // gives a slot its codec and shape; before the slot's first Block
	Block                      // one block of a tensor
	Gather                     // blocks whose bytes do not lie side by side
	Ref                        // the value of a block is one that the receiver holds
	CloseWrite                 // the app closed this direction (FIN)
	Reset                      // the app, or the way to it, broke (RST)
	Room                       // value streams: bytes that the other side may put
	Forget                     // value streams: values that no Ref will name any more
	Evict                      // value streams: slots that stand for no block any more
	Delivered                  // value streams: Refs that have been delivered
	Want                       // value streams: slots whose earlier values the other is asked to keep
	Kept                       // value streams: slots whose earlier values are kept
	Seen                       // value streams: how many values of such slots have come
	Rest                       // this direction of the connection is at rest
	Parts                      // bytes of values that the receiver holds, and others
	Mask                       // the bytes of the Blocks, Refs and Parts that follow are masked before they are delivered
)

var kindNames = [...]string{Bytes: "bytes", Declare: "declare", Block: "block", Gather: "gather", Ref: "ref", CloseWrite: "close_write", Reset: "reset",
	Room: "room", Forget: "forget", Evict: "evict", Delivered: "delivered", Want: "want", Kept: "kept", Seen: "seen", Rest: "rest", Parts: "parts", Mask: "mask"}

// String returns the kind's name as logs and metrics write it.
func (k Kind) String() string {
	if !k.valid() {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

func (k Kind) valid() bool   { return k >= Bytes && int(k) < len(kindNames) }
func (k Kind) hasSlot() bool { return k == Declare || k == Block }

const (
	// MaxBlock is the maximum of bytes of elements that a block may hold, and that a Gather may deliver.
	MaxBlock = 16 << 20
	// MaxSlots bounds the slots that one direction of a connection may declare.
	MaxSlots = 1 << 16
	// MaxHeader is the maximum of bytes before a frame's body: kind, slot, length.
	MaxHeader = 1 + binary.MaxVarintLen32 + binary.MaxVarintLen64
	// MaxSmall bounds the bodies whose parts are short texts and numbers: all bodies but the ones of Bytes, Block,
	// Gather and Parts.
	MaxSmall = 4 << 10
	// MaxBytes bounds a Bytes frame. The Reader hands its body on in pieces, so that nothing waits for the rest.
	MaxBytes = 1 << 30
)

// Forms of a Block: its body's first byte.
const (
	FormCoded       = iota // an encoding of the slot's codec
	FormRaw                // the elements as they are
	FormReverse            // on value streams: a difference to a value of the other value stream; see package cache
	FormShort              // an encoding of the slot's codec without the codes of zeros; see coder.Short, and on value streams cache.Short
	FormSummed             // the same as FormCoded, of a block whose CRC-32 stays; see coder.Checksums
	FormSummedShort        // the same as FormShort, of a block whose CRC-32 stays
)

// ErrFrame is wrapped by the errors of frames that no sender makes: the receiver must reset the connection.
var ErrFrame = errors.New("proxy: bad frame")

// AppendHeader appends the bytes that come before the body of a frame with n bytes of body.
func AppendHeader(dst []byte, k Kind, slot uint32, n int) []byte {
	dst = append(dst, byte(k))
	if k.hasSlot() {
		dst = binary.AppendUvarint(dst, uint64(slot))
	}
	return binary.AppendUvarint(dst, uint64(n))
}

// Append appends f as it is on the wire.
func Append(dst []byte, f Frame) []byte {
	return append(AppendHeader(dst, f.Kind, f.Slot, len(f.Body)), f.Body...)
}

// Front writes a frame's header just before the body that begins at buf[MaxHeader] and returns the whole frame, so that
// header and body leave in one write without a copy.
func Front(buf []byte, k Kind, slot uint32) []byte {
	var h [MaxHeader]byte
	n := len(AppendHeader(h[:0], k, slot, len(buf)-MaxHeader))
	frame := buf[MaxHeader-n:]
	copy(frame, h[:n])
	return frame
}
