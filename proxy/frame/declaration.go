package frame

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Declaration gives a slot its codec and shape. It describes itself, so that a recorded stream can be decoded
// without configuration.
type Declaration struct {
	Codec string       // text with parameters
	DType tensor.DType // of the elements; NoDType: bytes
	N     int          // elements in the block
	Job   string
	Key   uint64 // of the tensor; 0: none, and the slot's coder keeps nothing of a tensor between blocks
	Off   int    // of the block in the tensor, in bytes
	Base  uint64 // Key of the tensor that predicts this one; 0: none. On value streams: Key, or the key of values that go the other way
	Keys  uint64 // Key of the index array of a sparse tensor; 0: dense

	// Role is the tensor's, for the receiver's metrics alone; Unknown in a slot that several tensors share (Job, Key,
	// Off, Base and Keys are zero).
	Role tensor.Role
}

const (
	maxCodecText = 256 // bytes
	// MaxJobName bounds the name of a job, in bytes.
	MaxJobName = 255
)

// Size returns the bytes of the block's elements.
func (d *Declaration) Size() int { return d.N * d.DType.Size() }

// Append appends the body of the Declare frame.
func (d *Declaration) Append(dst []byte) []byte {
	dst = AppendText(dst, d.Codec)
	dst = append(dst, byte(d.DType))
	dst = binary.AppendUvarint(dst, uint64(d.N))
	if d.Job == "" && d.Key == 0 && d.Off == 0 && d.Base == 0 && d.Keys == 0 {
		return dst
	}
	dst = AppendText(dst, d.Job)
	dst = binary.LittleEndian.AppendUint64(dst, d.Key)
	dst = binary.AppendUvarint(dst, uint64(d.Off))
	dst = binary.LittleEndian.AppendUint64(dst, d.Base)
	dst = binary.LittleEndian.AppendUint64(dst, d.Keys)
	if d.Role == tensor.Unknown {
		return dst
	}
	return append(dst, byte(d.Role))
}

// AppendText appends a text and its length.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// roleOf returns the role that a peer tells, Unknown for one of a later version.
func roleOf(b byte) tensor.Role {
	if r := tensor.Role(b); slices.Contains(tensor.Roles(), r) {
		return r
	}
	return tensor.Unknown
}

// ParseDeclaration reads the body of a Declare frame. Bytes after the known fields are of a later version and skipped.
func ParseDeclaration(body []byte) (Declaration, error) {
	var d Declaration
	r := Fields{B: body}
	d.Codec = r.Text()
	d.DType = tensor.DType(r.Byte())
	d.N = r.Int()
	if len(r.B) > 0 {
		d.Job = r.Text()
		d.Key = r.Uint64()
		d.Off = r.Int()
		d.Base = r.Uint64()
		d.Keys = r.Uint64()
		if len(r.B) > 0 {
			d.Role = roleOf(r.Byte())
		}
	}
	switch {
	case r.Short:
		return d, fmt.Errorf("%w: declare is cut short", ErrFrame)
	case len(d.Codec) > maxCodecText || len(d.Job) > MaxJobName:
		return d, fmt.Errorf("%w: declare with a codec text of %d bytes and a job name of %d, at most %d and %d are possible",
			ErrFrame, len(d.Codec), len(d.Job), maxCodecText, MaxJobName)
	case !d.DType.Valid():
		return d, fmt.Errorf("%w: declare of dtype %d", ErrFrame, d.DType)
	case d.N == 0 || d.N > MaxBlock/d.DType.Size():
		return d, fmt.Errorf("%w: declare of %d %v, a block has 1 to %d bytes", ErrFrame, d.N, d.DType, MaxBlock)
	}
	return d, nil
}
