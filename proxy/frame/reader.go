package frame

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A ChunkReader gives a stream's bytes in pieces that stay valid until the next call, and that the caller may change
// until then; tunnel.Stream is one.
type ChunkReader interface {
	ReadChunk() ([]byte, error)
}

// A Reader reads the frames of a stream.
type Reader struct {
	Source ChunkReader
	// Limit returns how long a body may be; it is asked before any memory is taken for the body.
	Limit func(k Kind, slot uint32) (int, error)
	// Reserve sees to it that there is memory for the body of a Block, a Gather or Parts, of n bytes, which the caller
	// of Next keeps.
	Reserve func(k Kind, slot uint32, n int) error
	Pool    *memory.Pool // of the bodies of Block, Gather and Parts
	Counts  *Counts      // counts the frames; nil: nobody does

	cur  []byte // not yet read part of the last chunk
	rest int    // bytes of the current Bytes frame that are still to come
	body []byte // memory of the last other body that did not lie in one chunk
}

// maxJoined bounds the Bytes frames that Next returns as one: bodies of so many bytes at most, together.
const maxJoined = 4 << 10

// Next returns the next frame. The body of a Bytes frame comes as it arrives, in as many Frames as that takes, and
// short ones that have come together are one Frame: each Frame costs the caller a write to an app. The body of a Block,
// a Gather or Parts is a buffer of Pool, which the caller must put back; other bodies are valid until the next call. At
// the end of the stream Next returns io.EOF between frames and io.ErrUnexpectedEOF within one.
func (r *Reader) Next() (Frame, error) {
	for r.rest == 0 {
		f, n, err := r.header()
		if err != nil {
			return Frame{}, err
		}
		switch f.Kind {
		case Bytes:
			r.rest = n
		case Block, Gather, Parts:
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
	f := Frame{Kind: Bytes, Body: r.cur[:n]}
	r.cur, r.rest = r.cur[n:], r.rest-n
	if r.rest == 0 {
		f.Body = r.join(f.Body)
	}
	return f, nil
}

// join appends the bodies of the Bytes frames that lie whole behind body in the chunk. They are moved there, over the
// headers between them.
func (r *Reader) join(body []byte) []byte {
	for len(body) < maxJoined && len(r.cur) > 1 && Kind(r.cur[0]) == Bytes {
		length, n := binary.Uvarint(r.cur[1:])
		if n <= 0 || length > uint64(min(len(r.cur)-1-n, maxJoined-len(body))) {
			break
		}
		end := 1 + n + int(length)
		body = append(body, r.cur[1+n:end]...)
		r.cur = r.cur[end:]
		r.Counts.add(Bytes)
	}
	return body[:len(body):len(body)]
}

// header reads a frame up to its body, whose length it returns once it is known to be allowed.
func (r *Reader) header() (f Frame, n int, err error) {
	if err = r.fill(io.EOF); err != nil {
		return f, 0, err
	}
	f.Kind = Kind(r.cur[0])
	r.cur = r.cur[1:]
	if !f.Kind.valid() {
		return f, 0, fmt.Errorf("%w: %v", ErrFrame, f.Kind)
	}
	if f.Kind.hasSlot() {
		slot, err := r.uvarint()
		if err != nil {
			return f, 0, err
		}
		if slot >= MaxSlots {
			return f, 0, fmt.Errorf("%w: slot %d of at most %d", ErrFrame, slot, MaxSlots)
		}
		f.Slot = uint32(slot)
	}
	length, err := r.uvarint()
	if err != nil {
		return f, 0, err
	}
	limit, err := r.Limit(f.Kind, f.Slot)
	if err != nil {
		return f, 0, err
	}
	if length > uint64(limit) {
		return f, 0, fmt.Errorf("%w: %v of %d bytes, at most %d are possible", ErrFrame, f.Kind, length, limit)
	}
	r.Counts.add(f.Kind)
	return f, int(length), nil
}

// keep reads the next n bytes into a buffer.
func (r *Reader) keep(f Frame, n int) ([]byte, error) {
	if err := r.Reserve(f.Kind, f.Slot, n); err != nil {
		return nil, err
	}
	body := r.Pool.Get(n)
	for rest := body; len(rest) > 0; {
		if err := r.fill(io.ErrUnexpectedEOF); err != nil {
			r.Pool.Put(body)
			return nil, err
		}
		k := copy(rest, r.cur)
		rest, r.cur = rest[k:], r.cur[k:]
	}
	return body, nil
}

// take returns the next n bytes, from the chunk if they lie in it.
func (r *Reader) take(n int) ([]byte, error) {
	if n <= len(r.cur) {
		b := r.cur[:n:n]
		r.cur = r.cur[n:]
		return b, nil
	}
	for r.body = r.body[:0]; len(r.body) < n; { // memory grows with the bytes that are there, not with the length that is claimed
		if err := r.fill(io.ErrUnexpectedEOF); err != nil {
			return nil, err
		}
		k := min(n-len(r.body), len(r.cur))
		r.body = append(r.body, r.cur[:k]...)
		r.cur = r.cur[k:]
	}
	return r.body, nil
}

// fill sees to it that at least one byte is there. atEOF is the error that the end of the stream is here.
func (r *Reader) fill(atEOF error) error {
	for len(r.cur) == 0 {
		b, err := r.Source.ReadChunk()
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
func (r *Reader) ReadByte() (byte, error) {
	if err := r.fill(io.ErrUnexpectedEOF); err != nil {
		return 0, err
	}
	b := r.cur[0]
	r.cur = r.cur[1:]
	return b, nil
}

func (r *Reader) uvarint() (uint64, error) {
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
	return 0, fmt.Errorf("%w: a number of more than 64 bits", ErrFrame)
}
