package proxy

import (
	"encoding/binary"
	"fmt"

	"github.com/gradproxy/gradproxy/tensor"
)

// A declaration gives a slot its codec and shape. It describes itself, so that a recorded stream can be decoded
// without configuration.
type declaration struct {
	codec string       // text with parameters
	dtype tensor.DType // of the elements; NoDType: bytes
	n     int          // elements in the block
	job   string
	key   uint64 // of the tensor; 0: none, and the slot's coder keeps nothing between blocks that is about a tensor
	off   int    // of the block in the tensor, in bytes
	base  uint64 // Key of the tensor that predicts this one; 0: none
	keys  uint64 // Key of the index array of a sparse tensor; 0: dense
}

const (
	maxCodecText = 256 // bytes
	maxJobName   = 255 // bytes
)

// size returns the bytes of the block's elements.
func (d *declaration) size() int { return d.n * d.dtype.Size() }

// append appends the body of the Declare frame.
func (d *declaration) append(dst []byte) []byte {
	dst = appendText(dst, d.codec)
	dst = append(dst, byte(d.dtype))
	dst = binary.AppendUvarint(dst, uint64(d.n))
	if d.job == "" && d.key == 0 && d.off == 0 && d.base == 0 && d.keys == 0 {
		return dst
	}
	dst = appendText(dst, d.job)
	dst = binary.LittleEndian.AppendUint64(dst, d.key)
	dst = binary.AppendUvarint(dst, uint64(d.off))
	dst = binary.LittleEndian.AppendUint64(dst, d.base)
	return binary.LittleEndian.AppendUint64(dst, d.keys)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// parseDeclaration reads the body of a Declare frame. What follows the known fields is of a later version and skipped.
func parseDeclaration(body []byte) (declaration, error) {
	var d declaration
	r := fields{b: body}
	d.codec = r.text()
	d.dtype = tensor.DType(r.byte())
	d.n = r.int()
	if len(r.b) > 0 {
		d.job = r.text()
		d.key = r.uint64()
		d.off = r.int()
		d.base = r.uint64()
		d.keys = r.uint64()
	}
	switch {
	case r.short:
		return d, fmt.Errorf("%w: declare is cut short", errFrame)
	case len(d.codec) > maxCodecText || len(d.job) > maxJobName:
		return d, fmt.Errorf("%w: declare with a codec text of %d bytes and a job name of %d, at most %d and %d are possible",
			errFrame, len(d.codec), len(d.job), maxCodecText, maxJobName)
	case !d.dtype.Valid():
		return d, fmt.Errorf("%w: declare of dtype %d", errFrame, d.dtype)
	case d.n == 0 || d.n > MaxBlock/d.dtype.Size():
		return d, fmt.Errorf("%w: declare of %d %v, a block has 1 to %d bytes", errFrame, d.n, d.dtype, MaxBlock)
	}
	return d, nil
}

// fields reads a body's parts one after another; short is set once one is missing, and all that follow are zero.
type fields struct {
	b     []byte
	short bool
}

func (f *fields) next(n int) []byte {
	if f.short || n < 0 || n > len(f.b) {
		f.short = true
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uint64() uint64 {
	if b := f.next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// int reads a varint that must fit a non-negative int.
func (f *fields) int() int {
	x, n := binary.Uvarint(f.b)
	if f.short || n <= 0 || x > 1<<62 {
		f.short = true
		return 0
	}
	f.b = f.b[n:]
	return int(x)
}

func (f *fields) text() string { return string(f.next(f.int())) }
