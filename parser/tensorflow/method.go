package tensorflow

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

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
		m.fields = &graphReader{message: m, graphs: newGraphs(c.conn, pathOfGraph)}
	case runGraph, runStep, enqueue, runFunction:
		r := &argumentReader{message: m, paths: argumentsOf(c.kind, h.From)}
		m.fields = r
		if c.kind == enqueue && isRequest {
			r.graphs = newGraphs(c.conn, pathOfFunction)
		}
	}
	m.scan = protoscan.New(m.fields, h.Len)
	return m
}

// End implements [grpc.Message].
func (m *message) End() bool {
	payload := m.fields.end(!m.scan.Broken())
	m.call.conn.under[m.head.From].release(m)
	return payload
}

// Held implements http2.Sized, by its own side's calls alone. Facts are bounded for all connections together, and left
// out; the connection tells of keys.
func (m *message) Held() int { return int(unsafe.Sizeof(*m)) + m.scan.Held() + m.fields.held() }

// Held implements [grpc.Sized].
func (x *connection) Held(from parser.Side) int { return x.under[from].held() }

var _ grpc.Sized = (*connection)(nil)

// Call implements [grpc.Service].
func (x *connection) Call(path string, s *grpc.Stream) grpc.Call {
	c := &call{conn: x, stream: s, path: path}
	switch path {
	case "/tensorflow.WorkerService/RecvTensor":
		c.kind = recvTensor
	case "/tensorflow.WorkerService/RecvBuf":
		c.kind = recvBuf
	case "/tensorflow.WorkerService/CompleteInstance":
		c.kind = completeInstance
	case "/tensorflow.WorkerService/RegisterGraph":
		c.kind = registerGraph
	case "/tensorflow.WorkerService/RunGraph":
		c.kind = runGraph
	case "/tensorflow.MasterService/RunStep":
		c.kind = runStep
	case "/tensorflow.eager.EagerService/Enqueue", "/tensorflow.eager.EagerService/StreamingEnqueue":
		c.kind = enqueue
	case "/tensorflow.eager.EagerService/RunComponentFunction":
		c.kind = runFunction
	default:
		return nil
	}
	return c
}
