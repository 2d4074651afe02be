package pathtest

import (
	"cmp"
	"encoding/binary"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// Toy is a protocol for tests. A message is 8 bytes, little-endian: tensor number (1 byte), total size (3 bytes),
// length of this piece (4 bytes); then the piece. Pieces of several tensors may interleave.
type Toy struct {
	Flow    bool // the sender may stop amid a tensor until it is answered
	Role    tensor.Role
	Proof   tensor.Proof
	Base    bool         // a value predicts the next
	Repeats bool         // the same bytes come again
	Unnamed bool         // all tensors have Key 0, as none that interleave may
	OneKey  bool         // all tensors have Key 1
	DType   tensor.DType // of all elements; 0: Float32
	Mask    tensor.Mask  // of all values
	CRC32   bool         // values have a CRC-32, which must stay
}

func (Toy) String() string { return "toy" }

// Traits promises nothing.
func (Toy) Traits() parser.Traits { return parser.Traits{} }

// New returns the parsers of a connection.
func (p Toy) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	return &toyParser{toy: p}, &toyParser{toy: p}
}

type toyParser struct {
	toy  Toy
	head []byte
	t    tensor.Tensor
	id   byte // of t
	left int  // bytes of the piece
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
		p.offs[p.id] = p.t.Off % p.t.Size
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
		p.id, p.t = id, tensor.Tensor{Key: uint64(id) + 1, Role: p.toy.Role, Proof: p.toy.Proof, DType: cmp.Or(p.toy.DType, tensor.Float32), Size: size, Off: p.offs[id], Mask: p.toy.Mask, CRC32: p.toy.CRC32}
		switch {
		case p.toy.Unnamed:
			p.t.Key = 0
		case p.toy.OneKey:
			p.t.Key = 1
		}
		if p.toy.Base {
			p.t.Base, p.t.Repeats = p.t.Key, p.toy.Repeats
		}
		if !p.toy.Flow {
			p.t.Hold = p.left
		}
	}
	return parser.Segment{Len: n}, nil
}

// ToyPiece returns a message with the next piece of tensor id.
func ToyPiece(id byte, size int, piece []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(size)<<8|uint32(id))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(piece)))
	return append(b, piece...)
}
