package tensorflow

import (
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

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

// Message implements [grpc.Call].
func (c *call) Message(h grpc.Head) grpc.Message {
	if h.Compressed {
		return nil
	}
	m := &message{call: c, head: h}
	isRequest := h.From == parser.Client
	switch c.kind {
	case recvTensor, recvBuf:
		if isRequest {
			m.fields = &requestReader{message: m}
		} else if c.kind == recvTensor {
			m.fields = &valueReader{message: m}
		} else {
			m.fields = &bufferReader{message: m}
		}
	case completeInstance:
		if !isRequest {
			return nil
		}
		m.fields = &instanceReader{message: m}
	case registerGraph:
		if !isRequest {
			m.fields = &handleReader{message: m}
			break
		}
		m.fields = &graphReader{message: m, graphs: newGraphs(c.conn.facts, pathOfGraph)}
	case runGraph, runStep, enqueue, runFunction:
		r := &argumentReader{message: m, paths: argumentsOf(c.kind, h.From)}
		m.fields = r
		if c.kind == enqueue && isRequest {
			r.graphs = newGraphs(c.conn.facts, pathOfFunction)
		}
	}
	m.scan = protoscan.New(m.fields, h.Len)
	return m
}

// fields reads the fields of one kind of message.
type fields interface {
	protoscan.Reader
	// end is called after the message's last byte, and reports whether the message had a payload. whole is false if the bytes were no such message.
	end(whole bool) (payload bool)
}

// A message reads one message.
type message struct {
	call    *call
	head    grpc.Head
	fields  fields
	scan    *protoscan.Scanner
	value   tensor.Tensor // whose bytes are emitted, from the next byte on
	claimed []uint64      // keys
	ended   bool
}

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

// End implements [grpc.Message].
func (m *message) End() bool {
	payload := m.fields.end(!m.scan.Broken())
	m.call.conn.release(m)
	return payload
}
