package proxy

import (
	"encoding/binary"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// toy is a protocol for tests. A message is 8 bytes, little-endian: tensor number (1 byte), total size (3 bytes),
// length of this piece (4 bytes); then the piece. Pieces of several tensors may interleave.
type toy struct {
	flow bool // the sender may stop amid a tensor until it is answered
	role tensor.Role
	base bool // a value predicts the next
}

func (toy) String() string        { return "toy" }
func (toy) Traits() parser.Traits { return parser.Traits{} }

func (p toy) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	return &toyParser{toy: p}, &toyParser{toy: p}
}

type toyParser struct {
	toy
	head []byte
	t    tensor.Tensor
	left int // bytes of the piece
	offs [256]int
}

func (p *toyParser) Next(b []byte) (parser.Segment, error) {
	if p.left > 0 {
		n := min(p.left, len(b))
		seg := parser.Segment{Len: n, Tensor: p.t}
		p.left -= n
		p.t.Off += n
		if p.t.Hold > 0 {
			p.t.Hold -= n
		}
		p.offs[p.t.Key-1] = p.t.Off % p.t.Size
		return seg, nil
	}
	n := min(8-len(p.head), len(b))
	p.head = append(p.head, b[:n]...)
	if len(p.head) == 8 {
		id, size := p.head[0], int(binary.LittleEndian.Uint32(p.head)>>8)
		p.left = int(binary.LittleEndian.Uint32(p.head[4:]))
		p.head = p.head[:0]
		if p.left > 0 && (size == 0 || p.left > size-p.offs[id]) {
			return parser.Segment{}, parser.ErrForeign
		}
		p.t = tensor.Tensor{Key: uint64(id) + 1, DType: tensor.Float32, Size: size, Off: p.offs[id]}
		if p.t.Role = p.role; p.base {
			p.t.Base = p.t.Key
		}
		if !p.flow {
			p.t.Hold = p.left
		}
	}
	return parser.Segment{Len: n}, nil
}

// toyPiece returns a message with the next piece of tensor id.
func toyPiece(id byte, size int, piece []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(size)<<8|uint32(id))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(piece)))
	return append(b, piece...)
}
