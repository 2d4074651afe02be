package grpc

import (
	"sync/atomic"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Service reads the calls of one connection. Its methods are called by one goroutine at a time.
type Service interface {
	// Speaks reports whether a connection whose first call has that path is the framework's. If not, its parsers return
	// [parser.ErrForeign].
	Speaks(path string) bool
	// Call is told of each call as its request begins. It returns nil if nobody reads the call's messages.
	Call(path string, s *Stream) Call
}

// A Labeler is a Service that can tell the names of tensors.
type Labeler interface {
	Service
	// Label is [parser.Labeler]'s, for a tensor that a side sends. It is called by the goroutine that is given the
	// side's messages.
	Label(from parser.Side, t tensor.Tensor) parser.Label
}

// A Sized is a Service that holds memory which its calls do not count.
type Sized interface {
	Service
	// Held returns about how many bytes the Service holds for the messages of a side. It is called by the goroutine
	// that is given them, and must be quick.
	Held(from parser.Side) int
}

// A Named message can tell the name of the tensor whose bytes its Next has returned last. Where the Service is no
// [Labeler], it is asked.
type Named interface {
	Message
	Label() parser.Label
}

// A Call reads the messages of one call. Its state beside that of messages under way, which may tell by Held how many
// bytes they take, is told by a Held of its own: that is called after each Next, and may be called beside the other
// side's calls.
type Call interface {
	// Message is told of each message as it begins. It returns nil if nobody reads the message. Calls for the two sides
	// may be concurrent.
	Message(h Head) Message
}

// A Head describes a message before its first byte.
type Head struct {
	From       parser.Side
	Number     int  // of that side's messages in the call before it
	Len        int  // bytes of the message
	Compressed bool // its bytes are not the message's but compressed; they are opaque, whatever Message returns
}

// A Message reads one message.
type Message interface {
	// Next classifies a prefix of b, at least one byte of it: the message's next bytes, and none beyond its end. sure
	// is how many bytes of the message, from b's first on, are sure to follow without an answer to the sender, since
	// they lie in one frame. Next must neither modify nor retain b. How the message is cut into calls must not change
	// the class of any byte.
	Next(b []byte, sure int) parser.Segment
	// End is called after the message's last byte; of an empty message it is the only call. It is not called if the
	// rest of the message never comes. It reports whether the message had a payload for the framework's user, which may
	// be empty.
	End() (payload bool)
}

// A Stream is the HTTP/2 stream of a call.
type Stream struct{ over atomic.Bool }

// Over reports that the stream has been reset, or has come to its end: nothing of its messages comes any more, but for
// the rest of a frame.
func (s *Stream) Over() bool { return s.over.Load() }
