// Package protowalk walks messages of Protocol Buffers as their bytes come. It holds back nothing and copies only the short fields that
// its user asks for, so that an array within a message can be found before the message is whole.
//
// The wire format is https://protobuf.dev/programming-guides/encoding: a message is fields, each a varint key (number << 3 | type) and a
// varint, 8 bytes, a length with as many bytes, or 4 bytes. Groups, which no message of proto3 has, are not understood.
package protowalk

// A Path names a field by the numbers of the fields around it, the outermost first, a byte each: field 1 of field 2 of the message is 0x0201.
// 0 is the message itself. Fields whose numbers are above 255, or that are nested more than 8 deep, have no Path and are skipped.
type Path uint64

// sub returns the Path of a field of p, and false if there is none.
func (p Path) sub(number uint64) (Path, bool) {
	return p<<8 | Path(number), number <= 0xff && p>>56 == 0
}

// A Want is the use of a field that has a length.
type Want uint8

const (
	Skip    Want = iota // nobody looks at it
	Enter               // it is a message
	Collect             // Handler.Bytes is given a copy, if it has at most MaxCollected bytes
	Stream              // the Scanner's user takes its bytes as they come
)

// MaxCollected bounds the bytes of a field that is collected.
const MaxCollected = 1 << 10

// A Handler is told of the fields of a message, in their order.
type Handler interface {
	// Field is told of a field of size bytes, before its first byte.
	Field(p Path, size int) Want
	// Varint is told of a field that is a number, once it is whole.
	Varint(p Path, v uint64)
	// Bytes is given a collected field, which is valid during the call.
	Bytes(p Path, b []byte)
	// End is told that an entered field, or with 0 the message, is whole.
	End(p Path)
}

// A Scanner walks one message after the other. The zero Scanner is between two messages.
type Scanner struct {
	handler Handler
	levels  []level // that have been entered, the message first
	off     int     // of the next byte in the message
	lost    bool    // the rest of the message is not understood

	state  state
	number uint64 // the varint that has come in part
	shift  uint
	path   Path // of the current field
	named  bool // it has a Path
	rest   int  // bytes of it that have not come
	want   Want
	held   []byte
}

// A level is a message whose fields are under way.
type level struct {
	path Path
	end  int // where it ends in the outermost message
}

// A state is the part of a field that the next byte belongs to.
type state uint8

const (
	key state = iota
	varint
	length
	content // bytes whose number is known
)

// Begin begins a message of size bytes, whatever has become of the one before.
func (s *Scanner) Begin(size int, h Handler) {
	*s = Scanner{handler: h, levels: append(s.levels[:0], level{end: size}), held: s.held[:0]}
	s.close()
}

// Lost reports whether the message, from some byte on, is none.
func (s *Scanner) Lost() bool { return s.lost }

// Rest returns how many bytes of the message have not come.
func (s *Scanner) Rest() int {
	if len(s.levels) == 0 {
		return 0
	}
	return s.levels[0].end - s.off
}

// Streaming returns how many bytes of a streamed field have not come. While it is not 0, the user must take them by Take.
func (s *Scanner) Streaming() int {
	if s.state == content && s.want == Stream && !s.lost {
		return s.rest
	}
	return 0
}

// Take says that n bytes of the streamed field have come, at most Streaming.
func (s *Scanner) Take(n int) {
	s.off += n
	if s.rest -= n; s.rest == 0 {
		s.state = key
		s.close()
	}
}

// Next takes bytes of b up to the first byte of a streamed field, or the message's end, and returns their number.
func (s *Scanner) Next(b []byte) int {
	n := 0
	for n < len(b) && s.Rest() > 0 && s.Streaming() == 0 {
		switch {
		case s.lost:
			m := min(len(b)-n, s.Rest())
			s.off += m
			n += m
		case s.state == content:
			m := min(len(b)-n, s.rest)
			if s.want == Collect {
				s.held = append(s.held, b[n:n+m]...)
			}
			n += m
			s.off += m
			if s.rest -= m; s.rest == 0 {
				if s.want == Collect {
					s.handler.Bytes(s.path, s.held)
					s.held = s.held[:0]
				}
				s.state = key
				s.close()
			}
		default:
			s.off++
			s.byte(b[n])
			n++
		}
	}
	return n
}

// byte takes a byte of a varint.
func (s *Scanner) byte(b byte) {
	if s.shift == 63 && b > 1 {
		s.lost = true
		return
	}
	s.number |= uint64(b&0x7f) << s.shift
	if b >= 0x80 {
		if s.shift += 7; s.off == s.top().end {
			s.lost = true
		}
		return
	}
	v := s.number
	s.number, s.shift = 0, 0
	switch s.state {
	case key:
		s.field(v)
	case varint:
		if s.named {
			s.handler.Varint(s.path, v)
		}
		s.state = key
		s.close()
	case length:
		s.bytes(v)
	}
}

// Types of the wire format.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// field begins the field of a key.
func (s *Scanner) field(k uint64) {
	s.path, s.named = s.top().path.sub(k >> 3)
	if k>>3 == 0 || k>>3 >= 1<<29 {
		s.lost = true
		return
	}
	switch k & 7 {
	case typeVarint:
		s.state = varint
	case typeBytes:
		s.state = length
	case typeFixed64:
		s.skip(8)
	case typeFixed32:
		s.skip(4)
	default:
		s.lost = true
	}
	if s.off == s.top().end {
		s.lost = true // the field has no value
	}
}

// skip begins a field of n bytes that nobody looks at.
func (s *Scanner) skip(n int) {
	s.state, s.want, s.rest = content, Skip, n
	s.lost = s.lost || n > s.top().end-s.off
}

// bytes begins a field of n bytes.
func (s *Scanner) bytes(n uint64) {
	if n > uint64(s.top().end-s.off) {
		s.lost = true
		return
	}
	s.state, s.want, s.rest = content, Skip, int(n)
	if s.named {
		s.want = s.handler.Field(s.path, int(n))
	}
	switch {
	case s.want == Enter:
		s.levels = append(s.levels, level{s.path, s.off + int(n)})
		s.state = key
	case s.want == Collect && n > MaxCollected:
		s.want = Skip
	case s.want == Collect && n == 0:
		s.handler.Bytes(s.path, nil)
	}
	if n == 0 {
		s.state = key
	}
	s.close()
}

// close ends the messages that are whole.
func (s *Scanner) close() {
	for s.state == key && len(s.levels) > 0 && s.off == s.top().end {
		p := s.top().path
		s.levels = s.levels[:len(s.levels)-1]
		s.handler.End(p)
	}
}

func (s *Scanner) top() *level { return &s.levels[len(s.levels)-1] }

// Held returns about how many bytes the Scanner holds.
func (s *Scanner) Held() int { return cap(s.held) + cap(s.levels)*16 }
