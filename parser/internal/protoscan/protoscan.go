// Package protoscan reads Protocol Buffers messages (https://protobuf.dev/programming-guides/encoding) as their bytes
// come, in pieces of any size. It buffers no more than a number or a short field, and tells where the bytes of long
// fields lie.
package protoscan

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Path names a field by its number and the numbers of the fields that it lies in, the innermost in the low byte.
// Numbers from 255 on are all 255, which no reader should know.
type Path uint64

// maxDepth is how deep messages are read: a field at that depth has a Path of 8 numbers.
const maxDepth = 7

// Of returns the Path of numbers, the outermost first.
func Of(numbers ...protowire.Number) (p Path) {
	for _, n := range numbers {
		p = p.In(n)
	}
	return p
}

// In returns the Path of field n of the message in field p.
func (p Path) In(n protowire.Number) Path { return p<<8 | Path(min(n, 255)) }

// Leads reports whether q is p, or lies in p.
func (p Path) Leads(q Path) bool {
	for ; q > p; q >>= 8 {
	}
	return q == p
}

// An Action says how a field of many bytes is read.
type Action uint8

const (
	Skip    Action = iota
	Descend        // it is a message
	Keep           // give it to Kept when it is whole; longer ones than MaxKept are skipped
	Emit           // Next tells its bytes from others
)

// MaxKept is the length of the longest field that is kept, in bytes.
const MaxKept = 4 << 10

// A Reader is told of the fields of a message in their order.
type Reader interface {
	// Field is told of a field of n bytes before the first of them.
	Field(p Path, n int) Action
	// Kept is given a field that was to be kept. b is valid during the call.
	Kept(p Path, b []byte)
	// Number is given a number: an integer as it is encoded, or the bits of a fixed32 or fixed64.
	Number(p Path, v uint64)
	// Leave is told of the end of a message that was descended into.
	Leave(p Path)
}

// A Scanner reads one message after the other. The zero Scanner is ready for Begin. It must not be copied.
type Scanner struct {
	reader Reader
	pos    int // bytes that have come
	depth  int // messages that were descended into
	levels [maxDepth + 1]level

	state  state
	buf    [binary.MaxVarintLen64]byte // of a number
	have   int                         // bytes of buf that have come
	need   int                         // bytes of a number of fixed length
	field  Path                        // the current field
	end    int                         // where it ends
	action Action
	kept   []byte
	broken bool
}

// A level is a message under way.
type level struct {
	path Path
	end  int
}

// A state is the part of the message to which its next byte belongs.
type state uint8

const (
	inTag state = iota
	inVarint
	inFixed
	inLength
	inField
)

// New returns a Scanner that has begun a message of n bytes.
func New(r Reader, n int) *Scanner {
	s := new(Scanner)
	s.Begin(r, n)
	return s
}

// Begin begins a message of n bytes, whatever has become of the one before.
func (s *Scanner) Begin(r Reader, n int) {
	*s = Scanner{reader: r, kept: s.kept[:0]}
	s.levels[0].end = n
}

// Next reads a prefix of b, the message's next bytes, and returns its length, which is at least 1 if b is not empty.
// emit: these are bytes of the field that the Reader wants emitted. b must not go beyond the message.
func (s *Scanner) Next(b []byte) (n int, emit bool) {
	for n < len(b) && !s.broken {
		if s.state != inField {
			s.byte(b[n])
			n++
			continue
		}
		if s.action == Emit && n > 0 {
			return n, false
		}
		m := min(len(b)-n, s.end-s.pos)
		if s.action == Keep {
			s.kept = append(s.kept, b[n:n+m]...)
		}
		emit = s.action == Emit
		n += m
		s.pos += m
		s.settle()
		if emit {
			return n, true
		}
	}
	if s.broken {
		s.pos += len(b) - n
		return len(b), false
	}
	return n, false
}

// Emitting returns how many bytes of a field that is emitted have not come; 0: the next byte is of no such field.
func (s *Scanner) Emitting() int {
	if s.state == inField && s.action == Emit {
		return s.end - s.pos
	}
	return 0
}

// Take says that n bytes of the field that is emitted have come, at most Emitting. It stands in for Next, which would
// read as many of them as there are.
func (s *Scanner) Take(n int) {
	s.pos += n
	s.settle()
}

// Rest returns how many bytes of the message have not come.
func (s *Scanner) Rest() int { return s.levels[0].end - s.pos }

// Held returns how many bytes the Scanner holds besides its own.
func (s *Scanner) Held() int { return cap(s.kept) }

// Broken reports whether the message is none: the rest of its bytes are skipped.
func (s *Scanner) Broken() bool { return s.broken }

// Whole reports whether the message has come, and was one.
func (s *Scanner) Whole() bool { return !s.broken && s.Rest() == 0 && s.state == inTag && s.have == 0 }

// byte takes one byte of a number.
func (s *Scanner) byte(c byte) {
	s.buf[s.have] = c
	s.have++
	s.pos++
	switch {
	case s.pos > s.levels[s.depth].end:
		s.broken = true
	case s.state == inFixed:
		if s.have == s.need {
			v := uint64(binary.LittleEndian.Uint32(s.buf[:]))
			if s.need == 8 {
				v = binary.LittleEndian.Uint64(s.buf[:])
			}
			s.number(v)
		}
	case c < 0x80:
		v, n := protowire.ConsumeVarint(s.buf[:s.have])
		if n < 0 {
			s.broken = true
			return
		}
		s.have = 0
		s.varint(v)
	case s.have == len(s.buf):
		s.broken = true
	}
}

// varint takes a whole varint.
func (s *Scanner) varint(v uint64) {
	switch s.state {
	case inTag:
		s.tag(v)
	case inVarint:
		s.number(v)
	case inLength:
		s.length(v)
	}
}

func (s *Scanner) tag(v uint64) {
	n, typ := protowire.DecodeTag(v)
	if v > 1<<32-1 || n < protowire.MinValidNumber {
		s.broken = true
		return
	}
	s.field = s.levels[s.depth].path.In(n)
	switch typ {
	case protowire.VarintType:
		s.state = inVarint
	case protowire.Fixed32Type:
		s.state, s.need = inFixed, 4
	case protowire.Fixed64Type:
		s.state, s.need = inFixed, 8
	case protowire.BytesType:
		s.state = inLength
	default: // groups, which no schema has that is read here
		s.broken = true
	}
}

func (s *Scanner) number(v uint64) {
	s.have, s.state = 0, inTag
	s.reader.Number(s.field, v)
	s.settle()
}

func (s *Scanner) length(v uint64) {
	if v > uint64(s.levels[s.depth].end-s.pos) {
		s.broken = true
		return
	}
	n := int(v)
	s.end, s.state = s.pos+n, inField
	s.action = s.reader.Field(s.field, n)
	switch {
	case s.action == Descend && s.depth < maxDepth:
		s.depth++
		s.levels[s.depth] = level{s.field, s.end}
		s.state = inTag
	case s.action == Descend, s.action == Keep && n > MaxKept:
		s.action = Skip
	}
	s.settle()
}

// settle ends the field and the messages that have no bytes left.
func (s *Scanner) settle() {
	if s.state == inField {
		if s.pos < s.end {
			return
		}
		if s.state = inTag; s.action == Keep {
			s.reader.Kept(s.field, s.kept)
			s.kept = s.kept[:0]
		}
	}
	for s.depth > 0 && s.pos == s.levels[s.depth].end {
		s.depth--
		s.reader.Leave(s.levels[s.depth+1].path)
	}
}
