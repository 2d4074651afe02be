package nvflare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
)

// prefixLen is the number of bytes before a frame's header.
const prefixLen = 16

// Types of frames.
const (
	typeData  = 1
	typeHello = 4
	typeReady = 5
	typeLast  = 7 // PONG
)

// maxHello is the maximum length, in bytes, of a side's first frame.
const maxHello = 64 << 10

// errFrame says that the bytes are no frame.
var errFrame = errors.New("not a frame of NVFlare")

// An sfm reads the frames of one direction of a connection.
type sfm struct {
	direction
	streams streams

	copied   []byte  // bytes of the prefix and the header, until the header has come
	header   int     // length of the header
	left     int     // bytes of the payload still to come
	frames   int     // frames that have begun
	greeted  int     // bytes of the first payload that agree with greeting
	arrays   int     // frames with elements
	stream   *stream // of the present frame; nil: nobody reads it
	part     part    // the payload, as a part of its stream
	elements bool    // the present frame has had elements

	// The tensor that began last: its stream, its offset there, and its length.
	last     *stream
	at, size int
}

// next classifies a prefix of b. sure is the number of bytes, from the first of b on, that the sender writes without
// waiting for an answer.
func (s *sfm) next(b []byte, sure int) (parser.Segment, error) {
	if s.left == 0 || len(s.copied) > 0 {
		n, err := s.begin(b)
		return parser.Segment{Len: n}, err
	}
	b = b[:min(len(b), s.left)]
	seg := parser.Segment{Len: len(b)}
	if s.frames == 1 && !s.greet(b) {
		return seg, fmt.Errorf("%w: the first one does not begin with endpoint_name", errFrame)
	}
	if s.stream != nil {
		seg = s.stream.next(&s.part, b, min(sure, s.left))
	}
	if seg.Tensor.Size > 0 && !s.elements {
		s.elements = true
		s.arrays++
	}
	if seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
		s.last, s.at, s.size = s.stream, s.part.at-seg.Len, seg.Tensor.Size
	}
	if s.left -= seg.Len; s.left == 0 {
		s.end()
	}
	return seg, nil
}

// greeting is the bytes that follow the first byte of the payload of a side's first frame. That byte begins a map in
// MessagePack.
const greeting = "\xadendpoint_name"

// greet takes bytes of a side's first payload, and reports whether they agree with greeting.
func (s *sfm) greet(b []byte) bool {
	for ; len(b) > 0 && s.greeted <= len(greeting); b = b[1:] {
		if i := s.greeted; i == 0 && b[0]&0xf0 != 0x80 || i > 0 && b[0] != greeting[i-1] {
			return false
		}
		s.greeted++
	}
	return true
}

// recognized reports whether the first payload had the whole greeting, so that the bytes are surely frames.
func (s *sfm) recognized() bool { return s.greeted > len(greeting) }

// inside reports whether a frame has begun and not ended.
func (s *sfm) inside() bool { return s.left > 0 || len(s.copied) > 0 }

// end ends a frame.
func (s *sfm) end() {
	if s.stream != nil {
		s.stream.end()
	}
	s.stream, s.elements = nil, false
}

// begin takes bytes of a frame's prefix and header from b, and returns their number.
func (s *sfm) begin(b []byte) (n int, err error) {
	for n < len(b) {
		need := prefixLen
		if len(s.copied) >= prefixLen {
			need += s.header
		}
		m := min(need-len(s.copied), len(b)-n)
		s.copied = append(s.copied, b[n:n+m]...)
		n += m
		switch {
		case len(s.copied) < need:
			return n, nil
		case need == prefixLen:
			if err := s.prefix(); err != nil {
				return 0, err
			}
			if s.header > 0 {
				continue
			}
		}
		s.open()
		return n, nil
	}
	return n, nil
}

// prefix reads a frame's prefix.
func (s *sfm) prefix() error {
	length, kind := int(binary.BigEndian.Uint32(s.copied)), s.copied[6]
	s.header = int(binary.BigEndian.Uint16(s.copied[4:]))
	switch {
	case length < prefixLen+s.header, kind < typeData, kind > typeLast, s.copied[7] != 0:
		return fmt.Errorf("%w: length %d, header of %d bytes, type %d", errFrame, length, s.header, kind)
	case s.frames == 0 && (kind != [2]byte{parser.Client: typeHello, parser.Server: typeReady}[s.side] || length > maxHello || length-prefixLen-s.header <= len(greeting)):
		return fmt.Errorf("%w: the first one is neither HELLO nor READY, but type %d, of %d bytes", errFrame, kind, length)
	}
	s.left = length - prefixLen - s.header
	return nil
}

// open begins the payload of a frame, whose header has come.
func (s *sfm) open() {
	s.frames++
	kind, b := s.copied[6], s.copied[prefixLen:]
	if s.left == 0 {
		s.copied = s.copied[:0]
		return
	}
	if kind == typeData {
		if h, ok := parseHeader(b); ok && int64(s.left) <= h.size-h.offset {
			s.stream = s.streams.of(s.direction, &h)
			if s.stream != nil {
				s.part = s.stream.begin(int(h.offset), s.left)
			}
		}
	}
	s.copied = s.copied[:0]
}

// Held returns about how many bytes s holds.
func (s *sfm) Held() int { return int(unsafe.Sizeof(*s)) + cap(s.copied) + s.streams.held() }
