package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
)

// A Frame is the unit of what the two proxies say on one tunnel.Stream, which carries one
// connection's bytes in order, with backpressure, and sees no frames.
//
// On the wire, integers being unsigned varints (encoding/binary) unless said otherwise:
//
//	frame   = kind(1 byte) [slot] length body        slot: in Declare and Block only
//	Bytes   = opaque bytes, as they are
//	Declare = codec text, dtype(1 byte), n [job, key(8), off, base(8), keys(8)]  texts: length, bytes; fixed-width integers little-endian;
//	                                             nothing after n where all of it is empty or 0
//	Block   = form(1 byte) encoding                  form 0: of the slot's codec; 1: the n elements as they are
//	Gather  = runs in stream order: 2*n, then n literal bytes; or 2*n+1, b: the next n bytes of the b-th Block that follows
//	Ref     = epoch, number, size: a value that the receiver holds, or soon will; see values.go. In the place of a Block
//	CloseWrite, Reset = empty; nothing follows
//
//	Room, Forget, Evict, Delivered, Want, Kept, Seen: on value streams only, see values.go and opposite.go
//
// A Gather is followed by its Blocks, between which only Declares stand, and delivers everything at once.
type Frame struct {
	Kind Kind
	Slot uint32 // which Encoder and Decoder; in Declare and Block
	Body []byte // AppendFrame does not retain it; ReadFrame says whose it is
}

// A Kind says what a Frame is.
type Kind uint8

const (
	Bytes      Kind = iota + 1 // opaque bytes of the connection
	Declare                    // gives a slot its codec and shape; before the slot's first Block
	Block                      // one block of a tensor
	Gather                     // blocks whose bytes do not lie side by side
	Ref                        // the value that a block has is one that the receiver holds
	CloseWrite                 // the app closed this direction (FIN)
	Reset                      // the app, or the way to it, broke (RST)
	Room                       // value streams: bytes that the other side may put
	Forget                     // value streams: values that no Ref will name any more
	Evict                      // value streams: slots that stand for no block any more
	Delivered                  // value streams: Refs that have been delivered
	Want                       // value streams: slots whose earlier values the other is asked to keep
	Kept                       // value streams: slots whose earlier values are kept
	Seen                       // value streams: how many values of such slots have come
)

var kindNames = [...]string{Bytes: "bytes", Declare: "declare", Block: "block", Gather: "gather", Ref: "ref", CloseWrite: "close_write", Reset: "reset",
	Room: "room", Forget: "forget", Evict: "evict", Delivered: "delivered", Want: "want", Kept: "kept", Seen: "seen"}

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
	// MaxBlock is the most bytes of elements that a block may hold, and the most that a Gather may deliver.
	MaxBlock = 16 << 20
	// MaxSlots is how many slots one direction of a connection may declare.
	MaxSlots = 1 << 16
	// maxHeader is the most bytes before a frame's body: kind, slot, length.
	maxHeader = 1 + binary.MaxVarintLen32 + binary.MaxVarintLen64
	// maxSmall bounds the body of Declare and Ref, whose parts are short texts and numbers.
	maxSmall = 4 << 10
	// maxBytes bounds a Bytes frame. The reader hands its body on in pieces, so that nothing waits for the rest.
	maxBytes = 1 << 30
)

// errFrame is wrapped by the errors of frames that no sender makes: the connection is reset.
var errFrame = errors.New("proxy: bad frame")

// appendHeader appends what comes before the body of a frame with n bytes of body.
func appendHeader(dst []byte, k Kind, slot uint32, n int) []byte {
	dst = append(dst, byte(k))
	if k.hasSlot() {
		dst = binary.AppendUvarint(dst, uint64(slot))
	}
	return binary.AppendUvarint(dst, uint64(n))
}

// AppendFrame appends f as it is on the wire.
func AppendFrame(dst []byte, f Frame) []byte {
	return append(appendHeader(dst, f.Kind, f.Slot, len(f.Body)), f.Body...)
}

// frontHeader writes a frame's header just before the body that begins at buf[maxHeader] and returns the whole frame,
// so that header and body leave in one write without a copy.
func frontHeader(buf []byte, k Kind, slot uint32) []byte {
	var h [maxHeader]byte
	n := len(appendHeader(h[:0], k, slot, len(buf)-maxHeader))
	frame := buf[maxHeader-n:]
	copy(frame, h[:n])
	return frame
}

// A chunkReader gives a stream's bytes in pieces that stay valid until the next call (tunnel.Stream).
type chunkReader interface {
	ReadChunk() ([]byte, error)
}

// A frameReader reads the frames of a stream. Before it takes memory for a body it asks limit how long that may be, and
// then keeps for memory: of a Block, a Gather.
type frameReader struct {
	src     chunkReader
	limit   func(k Kind, slot uint32) (int, error)
	keeps   func(k Kind, slot uint32, n int) error // sees to it that there is memory for a body of n bytes that is kept
	buffers *mem.Pool                              // of such bodies
	cur     []byte                                 // not yet read part of the last chunk
	rest    int                                    // bytes of the current Bytes frame that are still to come
	body    []byte                                 // memory of the last other body that did not lie in one chunk
}

// ReadFrame returns the next frame. The body of a Bytes frame comes as it arrives, in as many Frames as that takes. That of a
// Block or a Gather is a buffer, which the caller gives back; others are valid until the next ReadFrame. At the end of the stream it returns io.EOF between frames and io.ErrUnexpectedEOF within one.
func (r *frameReader) ReadFrame() (Frame, error) {
	for r.rest == 0 {
		f, n, err := r.header()
		if err != nil {
			return Frame{}, err
		}
		switch f.Kind {
		case Bytes:
			r.rest = n
		case Block, Gather:
			f.Body, err = r.keep(f, n)
			return f, err
		default:
			f.Body, err = r.take(n)
			return f, err
		}
	}
	if err := r.fill(io.ErrUnexpectedEOF); err != nil {
		return Frame{}, err
	}
	n := min(r.rest, len(r.cur))
	f := Frame{Kind: Bytes, Body: r.cur[:n:n]}
	r.cur, r.rest = r.cur[n:], r.rest-n
	return f, nil
}

// header reads a frame up to its body, whose length it returns once it is known to be allowed.
func (r *frameReader) header() (f Frame, n int, err error) {
	if err = r.fill(io.EOF); err != nil {
		return f, 0, err
	}
	f.Kind = Kind(r.cur[0])
	r.cur = r.cur[1:]
	if !f.Kind.valid() {
		return f, 0, fmt.Errorf("%w: %v", errFrame, f.Kind)
	}
	if f.Kind.hasSlot() {
		slot, err := r.uvarint()
		if err != nil {
			return f, 0, err
		}
		if slot >= MaxSlots {
			return f, 0, fmt.Errorf("%w: slot %d of at most %d", errFrame, slot, MaxSlots)
		}
		f.Slot = uint32(slot)
	}
	length, err := r.uvarint()
	if err != nil {
		return f, 0, err
	}
	limit, err := r.limit(f.Kind, f.Slot)
	if err != nil {
		return f, 0, err
	}
	if length > uint64(limit) {
		return f, 0, fmt.Errorf("%w: %v of %d bytes, at most %d are possible", errFrame, f.Kind, length, limit)
	}
	return f, int(length), nil
}

// keep reads the next n bytes into a buffer.
func (r *frameReader) keep(f Frame, n int) ([]byte, error) {
	if err := r.keeps(f.Kind, f.Slot, n); err != nil {
		return nil, err
	}
	body := r.buffers.Get(n)
	for rest := body; len(rest) > 0; {
		if err := r.fill(io.ErrUnexpectedEOF); err != nil {
			r.buffers.Put(body)
			return nil, err
		}
		k := copy(rest, r.cur)
		rest, r.cur = rest[k:], r.cur[k:]
	}
	return body, nil
}

// take returns the next n bytes, from the chunk if they lie in it.
func (r *frameReader) take(n int) ([]byte, error) {
	if n <= len(r.cur) {
		b := r.cur[:n:n]
		r.cur = r.cur[n:]
		return b, nil
	}
	for r.body = r.body[:0]; len(r.body) < n; { // memory grows with what is there, not with what is claimed
		if err := r.fill(io.ErrUnexpectedEOF); err != nil {
			return nil, err
		}
		k := min(n-len(r.body), len(r.cur))
		r.body = append(r.body, r.cur[:k]...)
		r.cur = r.cur[k:]
	}
	return r.body, nil
}

// fill sees to it that at least one byte is there; atEOF is what the end of the stream means here.
func (r *frameReader) fill(atEOF error) error {
	for len(r.cur) == 0 {
		b, err := r.src.ReadChunk()
		r.cur = b
		switch {
		case len(b) > 0:
			return nil
		case err == io.EOF:
			return atEOF
		case err != nil:
			return err
		}
	}
	return nil
}

// ReadByte lets encoding/binary read varints across chunks.
func (r *frameReader) ReadByte() (byte, error) {
	if err := r.fill(io.ErrUnexpectedEOF); err != nil {
		return 0, err
	}
	b := r.cur[0]
	r.cur = r.cur[1:]
	return b, nil
}

func (r *frameReader) uvarint() (uint64, error) {
	var x uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if shift == 63 && b > 1 {
				break
			}
			return x, nil
		}
	}
	return 0, fmt.Errorf("%w: a number of more than 64 bits", errFrame)
}
