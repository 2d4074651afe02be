package pslite

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A stream frames one direction of a connection.
type stream struct {
	conn *connection
	side parser.Side

	state     state
	undecided []byte // copy of the undecided bytes, already given out as opaque
	dealer    bool   // this is the side that connected
	ready     bool   // READY has come
	named     bool   // and has named a node
	err       error  // why the stream is not, or no longer, understood

	frame frame // the current frame
	next  part  // of the message, the next frame
	msg   message
	value tensor.Tensor // the current payload, from the next byte on
	count struct{ messages, payloads int }
}

// A state is the part of a stream to which its next byte belongs.
type state uint8

const (
	greeting state = iota
	header         // of a frame
	body           // of a frame, opaque
	payload        // of a frame, a tensor
)

// A part is the place of a frame in a message.
type part uint8

const (
	partName    part = iota // the server's, before BytePS's answers
	partMeta                // frame 0
	partKeys                // frame 1
	partVals                // frame 2
	partLens                // frame 3
	partCommand             // no part of a message
)

// A frame is the frame whose body is under way.
type frame struct {
	part part
	more bool // another frame of the message follows
	size int  // bytes of the body
	rest int  // bytes of the body still to come
	lead int  // bytes of the body before a payload begins; 0: it has begun, or there is none
}

// A message is the message whose frames are under way.
type message struct {
	meta   meta
	sender int // id of the node
	keys   keys
	vals   tensor.Tensor
	lens   lens
}

// maxHeld bounds, in bytes, a frame that is understood only whole, so that a copy of it is kept: a meta, READY.
const maxHeld = 1 << 20

// errBroken says that a stream of messages holds other bytes.
var errBroken = errors.New("pslite: not a message")

// collect gathers n bytes, which may come in pieces. It returns them once they are whole, and how many bytes of b it
// took. whole is valid until the next call.
func (s *stream) collect(b []byte, n int) (whole []byte, used int) {
	if len(s.undecided) == 0 && len(b) >= n {
		return b[:n], n
	}
	used = min(n-len(s.undecided), len(b))
	s.undecided = append(s.undecided, b[:used]...)
	if len(s.undecided) < n {
		return nil, used
	}
	whole = s.undecided
	if s.undecided = s.undecided[:0]; cap(whole) > 1<<16 {
		s.undecided = nil // one large meta is no reason to keep as much for ever
	}
	return whole, used
}

// fail notes that the stream is not, or no longer, understood.
func (s *stream) fail(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	if s.count.messages == 0 {
		s.err = fmt.Errorf("pslite: from the %v: %s: %w", s.side, why, parser.ErrForeign)
		return
	}
	s.err = fmt.Errorf("%w after %d messages from the %v: %s: the rest travels verbatim: %w",
		errBroken, s.count.messages, s.side, why, parser.ErrForget)
}

// Messages implements parser.Counter: it counts messages, and messages that carry values, empty
// ones included.
func (s *stream) Messages() (all, payloads int) { return s.count.messages, s.count.payloads }

// Recognized implements parser.Counter: the sender's READY has named a node, or a message has come.
func (s *stream) Recognized() bool { return s.named || s.count.messages > 0 }
