package tensorflow

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// A connection reads the calls of one connection.
type connection struct {
	conn  parser.Conn
	facts *facts
	scope scope
	seed  uint64
	under [2]underWay[*message] // by direction; each is used by its direction alone
}

// A kind is a method that is read.
type kind uint8

const (
	recvTensor kind = iota
	recvBuf
	completeInstance
	registerGraph
	runGraph
	runStep
	enqueue
	runFunction
)

// A call reads the messages of one call.
type call struct {
	conn   *connection
	stream *grpc.Stream
	path   string
	kind   kind

	mu      sync.Mutex // guards request, which the request sets and the response uses
	request request    // of a unary call
}

// set keeps a request for its response.
func (c *call) set(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = r
}

func (c *call) get() request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request
}

// Held implements http2.Sized: it tells of the request that waits for its response.
func (c *call) Held() int {
	r := c.get()
	return r.held()
}

// fields reads the fields of one kind of message.
type fields interface {
	protoscan.Reader
	// end is called after the message's last byte, and reports whether the message had a payload. whole is false if the
	// bytes were no such message.
	end(whole bool) (payload bool)
	// held returns about how many bytes the reader holds besides its own.
	held() int
}

// A message reads one message.
type message struct {
	call    *call
	head    grpc.Head
	fields  fields
	scan    *protoscan.Scanner
	value   tensor.Tensor // whose bytes are emitted, from the next byte on
	claimed []uint64      // keys
}

func (m *message) over() bool { return m.call.stream.Over() }

func (m *message) keys() *[]uint64 { return &m.claimed }

// Next implements [grpc.Message].
func (m *message) Next(b []byte, sure int) parser.Segment {
	rest := m.scan.Rest()
	n, emit := m.scan.Next(b)
	seg := parser.Segment{Len: n}
	if emit && m.value.Size > 0 {
		seg.Tensor = m.value
		// The message ends in this frame; of a tensor that comes in several pieces it may hold less than was announced.
		if rest <= sure && m.value.Size-m.value.Off <= rest {
			seg.Tensor.Hold = m.value.Size - m.value.Off
		}
		if m.value.Off += n; m.value.Off == m.value.Size {
			m.value = tensor.Tensor{}
		}
	}
	return seg
}
