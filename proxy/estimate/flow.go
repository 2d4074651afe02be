package estimate

import (
	"errors"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/send"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// errNoTunnel says that a flow has nowhere to read from.
var errNoTunnel = errors.New("estimate: a dry run has no tunnel")

// A Flow is one direction of a connection in an Estimator.
type Flow struct {
	conn    *path.Conn
	sender  *send.Sender
	sink    sink
	values  *cache.DryRun // nil: the host holds none
	buffers *memory.Pool
	sizes   Sizes
	last    *Size // of the bytes that were sent last
}

// Sizes are the sizes of a flow. Where tensors interleave, bytes that leave together count for the tensor that was
// whole last.
type Sizes struct {
	Tensors map[tensor.Role]*Size // by the role that the parser gives; the content check may have sent blocks exactly
	Opaque  Size
}

// A Size is a number of bytes before coding, and after it with frames.
type Size struct{ Raw, Wire int64 }

// Send sends b, which its parser has cut into segments; bytes behind them are opaque. It retains neither. An error is a
// defect of the lossless codec.
func (f *Flow) Send(b []byte, segments []parser.Segment) error {
	opaque := 0 // bytes at the front of b
	for _, seg := range segments {
		if seg.Tensor.Size == 0 {
			opaque += seg.Len
			continue
		}
		if err := f.send(b[:opaque], &f.sizes.Opaque, f.sender.Opaque); err != nil {
			return err
		}
		b, opaque = b[opaque:], 0
		f.conn.See(seg.Tensor, b[:seg.Len])
		err := f.send(b[:seg.Len], f.size(seg.Tensor.Role), func(buf []byte) error { return f.sender.Tensor(seg.Tensor, buf) })
		if err != nil {
			return err
		}
		b = b[seg.Len:]
	}
	return f.send(b, &f.sizes.Opaque, f.sender.Opaque)
}

// Tensors returns the bytes of all tensors so far.
func (f *Flow) Tensors() (sum Size) {
	for _, s := range f.sizes.Tensors {
		sum.Raw += s.Raw
		sum.Wire += s.Wire
	}
	return sum
}

// Size returns the bytes of all tensors of a role so far.
func (f *Flow) Size(r tensor.Role) Size { return *f.size(r) }

// See takes bytes of a tensor of the connection's other direction, in order, which a proxy compares with this
// direction's.
func (f *Flow) See(t tensor.Tensor, b []byte) { f.conn.See(t, b) }

func (f *Flow) size(r tensor.Role) *Size {
	if f.sizes.Tensors == nil {
		f.sizes.Tensors = map[tensor.Role]*Size{}
	}
	if f.sizes.Tensors[r] == nil {
		f.sizes.Tensors[r] = &Size{}
	}
	return f.sizes.Tensors[r]
}

// send gives b to take, with the room before it that senders need, and waits for the result: the choice for the next
// value may depend on it.
func (f *Flow) send(b []byte, s *Size, take func(buf []byte) error) error {
	if len(b) == 0 {
		return nil
	}
	buffers := f.buffers
	buf := buffers.Get(frame.MaxHeader + len(b))
	copy(buf[frame.MaxHeader:], b)
	err := take(buf)
	buffers.Put(buf)
	s.Raw += int64(len(b))
	return f.settle(s, err)
}

func (f *Flow) settle(s *Size, err error) error {
	err = errors.Join(err, f.sender.Wait())
	s.Wire += f.sink.bytes
	if f.values != nil {
		s.Wire += f.values.Bytes()
	}
	f.sink.bytes, f.last = 0, s
	return err
}

// Close ends the flow and returns its sizes. A value whose end was not sent travels verbatim.
func (f *Flow) Close() (Sizes, error) {
	if f.last == nil {
		return f.sizes, nil
	}
	err := f.settle(f.last, f.sender.End())
	return f.sizes, err
}

// A sink is a Stream that counts the bytes that are written to it.
type sink struct{ bytes int64 }

func (s *sink) Write(p []byte) (int, error)             { s.bytes += int64(len(p)); return len(p), nil }
func (s *sink) WriteMore(p []byte) (int, error)         { return s.Write(p) }
func (s *sink) Flush()                                  {}
func (s *sink) Path() (rtt time.Duration, rate float64) { return 0, 0 }
func (s *sink) ReadChunk() ([]byte, error)              { return nil, errNoTunnel }
func (s *sink) CloseWrite() error                       { return nil }
func (s *sink) Close() error                            { return nil }
func (s *sink) Reset(tunnel.Code)                       {}
