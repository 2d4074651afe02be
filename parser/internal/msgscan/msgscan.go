// Package msgscan walks a value of MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) as its bytes
// come. It holds back nothing and copies only short texts, so that an array within a message can be found before the
// message is whole.
package msgscan

// A Handler is told of the values, in their order, but for the keys of maps, which are in the Scanner's path.
type Handler interface {
	// Text is given a string of at most MaxText bytes, which is valid during the call.
	Text(b []byte)
	// Number is given an integer.
	Number(v int64)
	// Bool is given true or false.
	Bool(v bool)
	// Bin is told of a binary value of size bytes, before its first byte. true: the Scanner's user takes its bytes as
	// they come.
	Bin(size int) bool
}

// MaxText bounds the texts, keys included, that are collected; longer ones are skipped.
const MaxText = 512

// MaxDepth bounds the maps and arrays around a value.
const MaxDepth = 64

// A Scanner walks one value after the other. The zero Scanner is between two values.
type Scanner struct {
	handler Handler
	size    int // of the value
	off     int // of the next byte
	levels  []level
	lost    bool // the rest of the value is not understood
	state   state
	code    byte // of the value whose length comes
	number  uint64
	rest    int // bytes that are missing of the length, or the content
	use     use
	held    []byte
}

// A level is a map or an array whose elements are under way.
type level struct {
	array bool
	left  int    // keys and values, or elements, that have not been walked
	key   []byte // of the current value in a map
}

// A state is the part of a value that the next byte belongs to.
type state uint8

const (
	code state = iota
	length
	content
)

// A use is the use of content.
type use uint8

const (
	skip use = iota
	text
	stream
	integer
)

// Begin begins a value of size bytes.
func (s *Scanner) Begin(size int, h Handler) {
	*s = Scanner{handler: h, size: size, levels: append(s.levels[:0], level{array: true, left: 1}), held: s.held[:0]}
}

// Depth returns how many maps and arrays the current value stands in.
func (s *Scanner) Depth() int { return max(0, len(s.levels)-1) }

// Key returns the key under which the current value stands in the i-th map around it, from 0, the outermost; "" in an
// array. It is valid until the next value.
func (s *Scanner) Key(i int) []byte {
	if i+1 >= len(s.levels) || s.levels[i+1].array {
		return nil
	}
	return s.levels[i+1].key
}

// Path reports whether the current value stands under these keys and no others; "*" is any key, "" an array.
func (s *Scanner) Path(keys ...string) bool {
	if len(keys) != s.Depth() {
		return false
	}
	for i, k := range keys {
		if s.levels[i+1].array != (k == "") || k != "*" && k != string(s.levels[i+1].key) {
			return false
		}
	}
	return true
}

// Lost reports whether the bytes, from some on, are no value, or follow one.
func (s *Scanner) Lost() bool { return s.lost }

// Rest returns how many bytes have not come.
func (s *Scanner) Rest() int { return s.size - s.off }

// Held returns about how many bytes the Scanner holds.
func (s *Scanner) Held() int {
	n := cap(s.held) + 48*cap(s.levels)
	for i := range s.levels[:cap(s.levels)] {
		n += cap(s.levels[:cap(s.levels)][i].key)
	}
	return n
}

// Streaming returns how many bytes of a streamed value have not come. While it is not 0, the user must take them by
// Take.
func (s *Scanner) Streaming() int {
	if s.state == content && s.use == stream && !s.lost {
		return s.rest
	}
	return 0
}

// Take says that n bytes of the streamed value have come, at most Streaming.
func (s *Scanner) Take(n int) {
	s.off += n
	if s.rest -= n; s.rest == 0 {
		s.done()
	}
}

// Next takes bytes of b up to the first byte of a streamed value, or the end, and returns their number.
func (s *Scanner) Next(b []byte) int {
	n := 0
	for n < len(b) && s.Rest() > 0 && s.Streaming() == 0 {
		m := 1
		switch {
		case s.lost:
			m = min(len(b)-n, s.Rest())
		case s.state == code:
			s.begin(b[n])
		case s.state == length:
			s.number = s.number<<8 | uint64(b[n])
			if s.rest--; s.rest == 0 {
				s.sized(s.number)
			}
		default:
			m = min(len(b)-n, s.rest)
			s.take(b[n : n+m])
		}
		n += m
		s.off += m
		if s.state == content && s.rest > s.Rest() {
			s.lost = true
		}
	}
	return n
}

// begin begins a value, whose first byte is c.
func (s *Scanner) begin(c byte) {
	s.code, s.number = c, 0
	switch {
	case c < 0x80:
		s.integer(int64(c))
	case c < 0x90:
		s.open(false, int(c&15))
	case c < 0xa0:
		s.open(true, int(c&15))
	case c < 0xc0:
		s.text(int(c & 31))
	case c >= 0xe0:
		s.integer(int64(int8(c)))
	case c == 0xc0: // nil
		s.done()
	case c == 0xc2, c == 0xc3:
		if s.key() == nil {
			s.handler.Bool(c == 0xc3)
		}
		s.done()
	case c == 0xc1:
		s.lost = true
	case c <= 0xc6: // bin
		s.state, s.rest = length, 1<<(c-0xc4)
	case c <= 0xc9: // ext
		s.state, s.rest = length, 1<<(c-0xc7)
	case c == 0xca, c == 0xcb: // float
		s.skip(4 << (c - 0xca))
	case c <= 0xcf: // unsigned
		s.state, s.use, s.rest = content, integer, 1<<(c-0xcc)
	case c <= 0xd3: // signed
		s.state, s.use, s.rest = content, integer, 1<<(c-0xd0)
	case c <= 0xd8: // fixext, with its type
		s.skip(1 + 1<<(c-0xd4))
	case c <= 0xdb: // str
		s.state, s.rest = length, 1<<(c-0xd9)
	default: // array, map
		s.state, s.rest = length, 2<<((c-0xdc)&1)
	}
}

// sized goes on with a value whose length, n, has come.
func (s *Scanner) sized(n uint64) {
	switch c := s.code; {
	case n > uint64(s.Rest()): // so many bytes do not follow, nor so many elements
		s.lost = true
	case c <= 0xc6:
		s.state, s.use, s.rest = content, skip, int(n)
		if s.key() == nil && s.handler.Bin(int(n)) {
			s.use = stream
		}
		if n == 0 {
			s.done()
		}
	case c <= 0xc9:
		s.skip(int(n) + 1)
	case c <= 0xdb:
		s.text(int(n))
	default:
		s.open(c < 0xde, int(n))
	}
}

// key returns the level whose key the current value is, or nil.
func (s *Scanner) key() *level {
	if l := &s.levels[len(s.levels)-1]; !l.array && l.left%2 == 0 {
		return l
	}
	return nil
}

// skip begins n bytes of content that nobody looks at, at least one.
func (s *Scanner) skip(n int) { s.state, s.use, s.rest = content, skip, n }

// text begins a text of n bytes.
func (s *Scanner) text(n int) {
	if s.skip(n); n <= MaxText {
		s.use = text
	}
	if n == 0 {
		s.done()
	}
}

// integer takes an integer.
func (s *Scanner) integer(v int64) {
	if s.use = skip; s.key() == nil {
		s.handler.Number(v)
	}
	s.done()
}

// take takes bytes of content.
func (s *Scanner) take(b []byte) {
	switch s.use {
	case text:
		s.held = append(s.held, b...)
	case integer:
		for _, x := range b {
			s.number = s.number<<8 | uint64(x)
		}
	}
	if s.rest -= len(b); s.rest > 0 {
		return
	}
	if s.use != integer {
		s.done()
		return
	}
	v := int64(s.number)
	switch s.code {
	case 0xd0:
		v = int64(int8(v))
	case 0xd1:
		v = int64(int16(v))
	case 0xd2:
		v = int64(int32(v))
	}
	s.integer(v)
}

// open begins a map of n keys and values, or an array of n elements.
func (s *Scanner) open(array bool, n int) {
	if s.state = code; n == 0 {
		s.done()
		return
	}
	if len(s.levels) > MaxDepth || s.key() != nil {
		s.lost = true
		return
	}
	if !array {
		n *= 2
	}
	if k := len(s.levels); k < cap(s.levels) {
		s.levels = s.levels[:k+1]
		l := &s.levels[k]
		*l = level{array: array, left: n, key: l.key[:0]}
		return
	}
	s.levels = append(s.levels, level{array: array, left: n})
}

// done ends a value, and the maps and arrays that end with it.
func (s *Scanner) done() {
	l := s.key()
	switch {
	case l != nil: // a key
		if l.key = l.key[:0]; s.use == text {
			l.key = append(l.key, s.held...)
		}
	case s.use == text:
		s.handler.Text(s.held)
	}
	s.held, s.state, s.use = s.held[:0], code, skip
	for len(s.levels) > 0 {
		l := &s.levels[len(s.levels)-1]
		if l.left--; l.left > 0 {
			return
		}
		s.levels = s.levels[:len(s.levels)-1]
	}
	s.lost = true // the following bytes are no part of the value
}
