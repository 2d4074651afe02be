package frame

import (
	"encoding/binary"
	"fmt"
)

// MaxParts bounds the parts of a Parts frame.
const MaxParts = 1 << 12

// A Part is bytes of a Parts frame: N bytes of a value, or literal ones.
type Part struct {
	N       int
	Value   ValueRef // whose bytes they are; its ID is 0 where the part is literal
	From    int      // offset in the value
	Literal []byte
}

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
	}
	return dst
}

// ParseParts reads the body of a Parts frame, and returns how many bytes its parts have. The literal parts are bytes of body.
func ParseParts(body []byte) (parts []Part, size int, err error) {
	r := Fields{B: body}
	for len(r.B) > 0 && !r.Short {
		head := r.Int()
		p := Part{N: head >> 1}
		if p.N == 0 || p.N > MaxBlock-size || len(parts) == MaxParts {
			return nil, 0, fmt.Errorf("%w: parts of more than %d bytes, an empty part, or more than %d", ErrFrame, MaxBlock, MaxParts)
		}
		size += p.N
		if head&1 == 0 {
			p.Literal = r.Next(p.N)
		} else {
			v := &p.Value
			v.Epoch, v.ID, v.Size, p.From = uint64(r.Int()), uint64(r.Int()), r.Int(), r.Int()
			if !r.Short && (v.ID == 0 || v.Size > MaxBlock || p.From > v.Size || p.N > v.Size-p.From) {
				return nil, 0, fmt.Errorf("%w: a part is %d bytes from %d on of value %d, which has %d", ErrFrame, p.N, p.From, v.ID, v.Size)
			}
		}
		parts = append(parts, p)
	}
	if r.Short || len(parts) == 0 {
		return nil, 0, fmt.Errorf("%w: parts are cut short, or there are none", ErrFrame)
	}
	return parts, size, nil
}
