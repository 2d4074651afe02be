package npy

// A Scanner finds the elements of one .npy file after the other. The zero Scanner is between two files.
type Scanner struct {
	size   int // bytes of the file, or of its part, that come here
	off    int // of the next byte
	part   bool
	state  state
	held   []byte // the bytes before the elements, as far as they have come
	header Header
}

// A state is how far a file is understood.
type state uint8

const (
	before  state = iota // the elements
	inside               // they have begun, or there is none
	foreign              // it is no .npy file whose elements are understood
)

// Begin begins a file. Its first size bytes come here; unless part is true, the file has no more.
func (s *Scanner) Begin(size int, part bool) {
	*s = Scanner{size: size, part: part, held: s.held[:0]}
}

// Next takes the first bytes of b, at least one, and reports whether they are elements. b must not be empty and hold no
// byte after the file's.
func (s *Scanner) Next(b []byte) (n int, elements bool) {
	switch s.state {
	case inside:
		s.off += len(b)
		return len(b), true
	case foreign:
		s.off += len(b)
		return len(b), false
	}
	for n < len(b) && s.state == before {
		need, _ := headerLen(s.held)
		m := min(max(1, need-len(s.held)), len(b)-n)
		s.held = append(s.held, b[n:n+m]...)
		n += m
		need, whole := headerLen(s.held)
		switch {
		case need == 0 || need > s.size:
			s.state = foreign
		case whole:
			s.decide()
		}
	}
	if s.state == foreign {
		n = len(b)
	}
	s.off += n
	return n, false
}

// decide settles, once the header has come, whether the file's elements are understood.
func (s *Scanner) decide() {
	h, ok := Parse(s.held)
	here := s.size - h.Len
	s.held = s.held[:0]
	if s.state = foreign; !ok || here > h.Data || here < h.Data && !s.part {
		return
	}
	s.state, s.header = inside, h
}

// Header returns the file's header, and false if it has not come yet or is not understood.
func (s *Scanner) Header() (Header, bool) { return s.header, s.state == inside }

// Elements returns how many bytes of elements come here, and the offset of the next of them.
func (s *Scanner) Elements() (size, off int) {
	if s.state != inside {
		return 0, 0
	}
	return s.size - s.header.Len, s.off - s.header.Len
}

// Held returns how many bytes the Scanner holds.
func (s *Scanner) Held() int { return cap(s.held) }
