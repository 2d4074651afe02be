package gloo

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A stream frames one direction of a connection: it finds the ops, and its connection interprets them.
type stream struct {
	dir *direction

	state      state
	undecided  [helloLen + preambleLen]byte // copy of the undecided bytes, already given out as opaque
	nundecided int                          // bytes of undecided
	ops        int                          // preambles seen
	payloads   int                          // preambles of opcodes 0 and 1
	rest       int                          // bytes of the payload still to come
	value      tensor.Tensor                // the payload under way, from the next byte on
	watch      watch                        // how to examine it
	sample     *sample                      // of the payload, if watch.look says so; made at first use
	copied     []byte                       // copy of the payload, if watch.keep is set
	err        error                        // why the stream is not, or no longer, understood
}

// A state is the part of a stream to which its next byte belongs.
type state uint8

const (
	hello    state = iota // the first bytes of the side that connected: variant A or B
	preamble              // an op
	payload               // bytes of a tensor
)

// helloLen is the length of variant B's first message, in bytes.
const helloLen = 8

// errBroken says that a stream of ops holds something else.
var errBroken = errors.New("gloo: not an op")

// Next implements parser.Parser.
func (s *stream) Next(b []byte) (parser.Segment, error) {
	if s.state == payload {
		return s.take(b), nil
	}
	n := 0 // opaque bytes of b
	for n < len(b) && s.state != payload && s.err == nil {
		n += s.header(b[n:])
	}
	if n == 0 {
		return parser.Segment{}, s.err
	}
	return parser.Segment{Len: n}, nil
}

// take returns the next bytes of the payload.
func (s *stream) take(b []byte) parser.Segment {
	seg := parser.Segment{Len: min(len(b), s.rest), Tensor: s.value}
	s.rest -= seg.Len
	s.value.Off += seg.Len
	s.value.Hold = s.rest
	if s.watch.look != lookAway {
		s.sample.feed(b[:seg.Len])
	}
	if s.watch.fill != nil {
		s.watch.fill.Feed(b[:seg.Len])
	}
	if s.watch.keep {
		s.copied = append(s.copied, b[:seg.Len]...)
	}
	if s.rest == 0 {
		s.end()
	}
	return seg
}

// end takes note of the end of a payload.
func (s *stream) end() {
	s.state = preamble
	v := noEvidence
	if s.watch.look != lookAway {
		v = s.sample.verdict()
	}
	s.dir.end(s.watch, v, s.copied)
	s.copied = nil
}

// header takes bytes of b that belong to a preamble or to the first message, and returns their number. Where they do
// not belong to either it sets s.err; it returns 0 only then.
func (s *stream) header(b []byte) int {
	if s.state == preamble && s.nundecided == 0 && len(b) >= preambleLen {
		if s.err = s.begin(b); s.err != nil {
			return 0
		}
		return preambleLen
	}
	need := preambleLen
	if s.state == hello {
		need = s.helloNeeds()
	}
	n := copy(s.undecided[s.nundecided:need], b)
	s.nundecided += n
	if s.nundecided < need {
		return n
	}
	if s.state == hello {
		s.err = s.recognize()
	} else {
		s.err = s.begin(s.undecided[:])
		s.nundecided = 0
	}
	if s.err != nil {
		return 0
	}
	return n
}

// helloNeeds returns how many of the first bytes the next decision takes.
func (s *stream) helloNeeds() int {
	switch {
	case s.nundecided < 16:
		return 16
	case binary.LittleEndian.Uint64(s.undecided[8:]) <= uint64(notifyRecvReady):
		return preambleLen
	}
	return helloLen + preambleLen
}

// recognize decides between the variants as far as the undecided bytes allow. The second integer tells: in variant A it
// is an opcode, in variant B an op's nbytes, which is never that small.
func (s *stream) recognize() error {
	second := binary.LittleEndian.Uint64(s.undecided[8:])
	switch {
	case second <= uint64(notifyRecvReady):
		if s.nundecided < preambleLen {
			return nil
		}
		s.state, s.nundecided = preamble, 0
		return s.begin(s.undecided[:])
	case second < preambleLen, binary.LittleEndian.Uint64(s.undecided[:]) >= 1<<31:
		return fmt.Errorf("gloo: the first bytes are neither an op nor a pair's number: %w", parser.ErrForeign)
	case s.nundecided < helloLen+preambleLen:
		return nil
	}
	s.dir.conn.introduce(int64(binary.LittleEndian.Uint64(s.undecided[:])))
	s.state, s.nundecided = preamble, 0
	return s.begin(s.undecided[helloLen:])
}

// begin takes note of the op at the start of b.
func (s *stream) begin(b []byte) error {
	o, ok := parseOp(b)
	if !ok {
		if s.ops == 0 {
			return fmt.Errorf("gloo: the first bytes from the %v are no op: %w", s.dir.side, parser.ErrForeign)
		}
		return fmt.Errorf("%w after %d ops from the %v: the rest travels verbatim: %w", errBroken, s.ops, s.dir.side, parser.ErrForget)
	}
	s.ops++
	v, w, err := s.dir.begin(o)
	if err != nil {
		return err
	}
	if o.code.payload() {
		s.payloads++
	}
	if o.code.payload() && o.length > 0 {
		s.state, s.rest, s.value, s.watch = payload, o.length, v, w
		if w.look != lookAway {
			if s.sample == nil {
				s.sample = new(sample)
			}
			s.sample.begin(o.length, w.look == lookClosely)
		}
	}
	return nil
}

// Messages implements parser.Counter: it counts ops, and ops with a payload.
func (s *stream) Messages() (all, payloads int) { return s.ops, s.payloads }

// Recognized implements parser.Counter. Only an op tells Gloo from other protocols.
func (s *stream) Recognized() bool { return s.ops > 0 }

var _ parser.Counter = (*stream)(nil)
