package pslite

import "github.com/gradproxy/gradproxy/parser"

// How a stream takes the bytes of greetings, headers and frames.

// Next implements parser.Parser.
func (s *stream) Next(b []byte) (parser.Segment, error) {
	if s.state == payload {
		return s.take(b), nil
	}
	n := 0 // opaque bytes of b
	for n < len(b) && s.state != payload && s.err == nil {
		n += s.opaque(b[n:])
	}
	if n == 0 {
		return parser.Segment{}, s.err
	}
	return parser.Segment{Len: n}, nil
}

// take returns the next bytes of the payload.
func (s *stream) take(b []byte) parser.Segment {
	seg := parser.Segment{Len: min(len(b), s.frame.rest), Tensor: s.value}
	s.value.Off += seg.Len
	s.value.Hold -= seg.Len
	s.advance(b[:seg.Len], nil)
	return seg
}

// opaque takes bytes of b up to the end of the current greeting, header or body, and returns their number. It sets
// s.err if they are not understood, and returns 0 only then.
func (s *stream) opaque(b []byte) int {
	var n int
	switch s.state {
	case greeting:
		n = s.greet(b)
	case header:
		first := b[0]
		if len(s.undecided) > 0 {
			first = s.undecided[0]
		}
		whole, used := s.collect(b, headerLen(first))
		if n = used; whole != nil {
			s.begin(whole)
		}
	default:
		n = s.body(b)
	}
	if s.err != nil {
		return 0
	}
	return n
}

// greet takes bytes of the greeting.
func (s *stream) greet(b []byte) int {
	whole, n := s.collect(b, greetingLen)
	seen := whole
	if whole == nil {
		seen = s.undecided
	}
	if !greets(seen) {
		s.fail("the greeting is none of ZMTP 3 with the NULL mechanism")
	}
	if whole != nil {
		s.state = header
	}
	return n
}

// body takes bytes of the current frame.
func (s *stream) body(b []byte) int {
	var whole []byte
	n := min(len(b), s.frame.rest)
	switch s.frame.part {
	case partName, partMeta:
		whole, n = s.collect(b, s.frame.size)
	case partCommand:
		if !s.ready {
			whole, n = s.collect(b, s.frame.size)
		}
	case partKeys:
		if s.frame.lead > 0 {
			n = min(n, s.frame.lead)
		}
	}
	s.advance(b[:n], whole)
	return n
}

// advance takes note of the next bytes of a frame. With the last of them, whole is its body if that was collected.
func (s *stream) advance(b, whole []byte) {
	f, m := &s.frame, &s.msg
	switch f.part {
	case partKeys:
		m.keys.add(b)
	case partLens:
		m.lens.add(b)
	}
	if f.lead > 0 {
		if f.lead -= len(b); f.lead == 0 {
			s.beginPayload(s.conn.indexOf(s.route(), &m.meta, &m.keys, f.size))
		}
	}
	if f.rest -= len(b); f.rest == 0 {
		s.end(whole)
	}
}
