package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// MaxParts bounds the parts of a Parts frame.
const MaxParts = 1 << 12

// A Part is bytes of a Parts frame: N bytes of a value, or literal ones.
type Part struct {
	N       int
	Value   ValueRef // whose bytes they are; its ID is 0 where the part is literal
	From    int      // offset in the value
	Hash    uint64   // of the bytes of the value, by PartHash
	Literal []byte
}

// PartHash returns the hash by which a receiver tells that a value has the bytes that a part names.
func PartHash(b []byte) uint64 { return xxhash.Sum64(b) }

// AppendParts appends the body of a Parts frame.
func AppendParts(dst []byte, parts []Part) []byte {
	for i := range parts {
		p := &parts[i]
		if p.Value.ID == 0 {
			dst = AppendLiteral(dst, p.Literal)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(p.N)<<1|1)
		dst = p.Value.Append(dst)
		dst = binary.AppendUvarint(dst, uint64(p.From))
		dst = binary.LittleEndian.AppendUint64(dst, p.Hash)
	}
	return dst
}

// EachPart reads the body of a Parts frame. It calls f, unless that is nil, with each part in turn until f returns an
// error, and returns how many bytes the parts have. The literal parts are bytes of body.
func EachPart(body []byte, f func(*Part) error) (size int, err error) {
	r := Fields{B: body}
	n := 0
	for ; len(r.B) > 0; n++ {
		head := r.Int()
		p := Part{N: head >> 1}
		if p.N == 0 || p.N > MaxBlock-size || n == MaxParts {
			return 0, fmt.Errorf("%w: parts of more than %d bytes, an empty part, or more than %d", ErrFrame, MaxBlock, MaxParts)
		}
		size += p.N
		if head&1 == 0 {
			p.Literal = r.Next(p.N)
		} else {
			v := &p.Value
			v.Epoch, v.ID, v.Size, p.From, p.Hash = uint64(r.Int()), uint64(r.Int()), r.Int(), r.Int(), r.Uint64()
			if !r.Short && (v.ID == 0 || v.Size > MaxBlock || p.From > v.Size || p.N > v.Size-p.From) {
				return 0, fmt.Errorf("%w: a part is %d bytes from %d on of value %d, which has %d", ErrFrame, p.N, p.From, v.ID, v.Size)
			}
		}
		if r.Short {
			break
		}
		if f != nil {
			if err := f(&p); err != nil {
				return 0, err
			}
		}
	}
	if r.Short || n == 0 {
		return 0, fmt.Errorf("%w: parts are cut short, or there are none", ErrFrame)
	}
	return size, nil
}
