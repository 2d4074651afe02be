package tensorflowsim

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Process is a process of a cluster, which others call by gRPC. It has tensors for them, which they pull.
type Process struct {
	// Run runs the process's part of a session's graph, as one step, when another process asks for that; nil: it does
	// nothing.
	Run func(ctx context.Context, session string, step uint64) error

	mu      sync.Mutex
	tensors map[tensorID]chan []byte // a TensorProto, once it is there
}

// A tensorID names a tensor that one process has for another.
type tensorID struct {
	step uint64
	key  string // of the rendezvous
}

// windows and the largest frame are as TensorFlow announces them at first.
var windows = &http.HTTP2Config{MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 4 << 20, MaxReadFrameSize: 4 << 20}

// plainHTTP2 is HTTP/2 in plain text, as gRPC speaks it, and nothing else.
func plainHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// Serve answers the calls of connections of l until ctx is done, and returns when no call is being answered any more.
// It closes l.
func (p *Process) Serve(ctx context.Context, l net.Listener) error {
	a := &answers{process: p}
	s := &http.Server{Handler: a, Protocols: plainHTTP2(), HTTP2: windows, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	err := s.Serve(l)
	s.Close() // ends the calls under way, if l has failed
	a.end()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("tensorflowsim: %w", err)
}

// answers counts the calls that a process is answering, since http.Server.Close does not wait for them.
type answers struct {
	process *Process

	mu    sync.Mutex
	ended bool // no call is answered any more
	calls sync.WaitGroup
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	a.calls.Add(1)
	a.mu.Unlock()
	defer a.calls.Done()
	a.process.ServeHTTP(w, r)
}

// end waits for the calls under way.
func (a *answers) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.calls.Wait()
}

// Send has a tensor, a TensorProto, for the process that asks for its key in a step. The process that asks may come
// first. It gets the tensor once.
func (p *Process) Send(step uint64, key string, tensor []byte) {
	p.place(tensorID{step, key}) <- tensor
}

// place returns where a tensor is put and taken.
func (p *Process) place(id tensorID) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tensors == nil {
		p.tensors = map[tensorID]chan []byte{}
	}
	c := p.tensors[id]
	if c == nil {
		c = make(chan []byte, 1)
		p.tensors[id] = c
	}
	return c
}

// take waits for a tensor.
func (p *Process) take(ctx context.Context, id tensorID) ([]byte, error) {
	select {
	case tensor := <-p.place(id):
		p.mu.Lock()
		delete(p.tensors, id)
		p.mu.Unlock()
		return tensor, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ServeHTTP implements http.Handler: it answers a call.
func (p *Process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	request, err := readMessage(r.Body)
	if err == nil {
		var response []byte
		if response, err = p.answer(r.Context(), strings.TrimPrefix(r.URL.Path, WorkerService), request); err == nil {
			err = writeMessage(w, response)
		}
	}
	status := "0"
	if err != nil {
		status = "2"
	}
	w.Header().Set("Grpc-Status", status)
}

// answer returns the response of a method.
func (p *Process) answer(ctx context.Context, method string, request []byte) ([]byte, error) {
	f := fieldsOf(request)
	switch method {
	case "RegisterGraph":
		return Handle(), nil
	case "RunGraph":
		if p.Run == nil {
			return nil, nil
		}
		return nil, p.Run(ctx, string(f[8].content), f[2].number)
	case "RecvTensor":
		tensor, err := p.take(ctx, tensorID{f[1].number, string(f[2].content)})
		return Response(tensor), err
	}
	return nil, fmt.Errorf("tensorflowsim: there is no method %s", method)
}

// A field is the value of a field: an integer, or bytes.
type field struct {
	number  uint64
	content []byte
}

// fieldsOf returns the fields of a message, the last of each number, up to the first that cannot be read.
func fieldsOf(b []byte) map[protowire.Number]field {
	all := map[protowire.Number]field{}
	for len(b) > 0 {
		n, t, k := protowire.ConsumeTag(b)
		if k < 0 {
			break
		}
		b = b[k:]
		var f field
		switch t {
		case protowire.VarintType:
			f.number, k = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.content, k = protowire.ConsumeBytes(b)
		default:
			k = protowire.ConsumeFieldValue(n, t, b)
		}
		if k < 0 {
			break
		}
		all[n], b = f, b[k:]
	}
	return all
}

// Content returns the elements of the tensor in a RecvTensorResponse; nil: there are none.
func Content(response []byte) []byte { return fieldsOf(fieldsOf(response)[1].content)[4].content }

// maxMessage bounds a message, in bytes.
const maxMessage = 1 << 30

// prefixLen is the length of the bytes before a message of a call: whether it is compressed, and its length.
const prefixLen = 5

func readMessage(r io.Reader) ([]byte, error) {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != 0 || n > maxMessage {
		return nil, fmt.Errorf("tensorflowsim: a message that is compressed, or of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(prefixed(message))
	return err
}

// prefixed returns a message with its prefix.
func prefixed(message []byte) []byte {
	b := make([]byte, prefixLen, prefixLen+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}
