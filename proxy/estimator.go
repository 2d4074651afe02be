package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/send"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// An Estimator counts the bytes that a Proxy would hand to the tunnel, without one (a dry run): connections that were recorded go
// the way of connections that are carried, through policy, content check, block cutter and encoders with their feedback, and the
// frames are measured and dropped. The same bytes always give the same sizes.
//
// It takes as ideal the parts of a live path that it cannot know: the peer has every codec, no block waits in vain for its rest, and
// coding is always fast enough. Values that the peer holds are differences to earlier ones of the same direction, and cross once for each
// host that receives them: which hosts share a proxy is not known.
type Estimator struct {
	proxy   *Proxy
	values  *cache.DryRun
	quality *qualities
	flows   uint64
}

// NewEstimator returns an Estimator with cfg's Codecs, Protocols, Settings.Policy, Memory and Residuals; its other fields
// do nothing. The caller must Close it.
func NewEstimator(cfg Config) (*Estimator, error) {
	p, err := New(Config{
		Open:   func(context.Context, string, []byte) (Stream, error) { return nil, errNoTunnel },
		Codecs: cfg.Codecs, Protocols: cfg.Protocols, Settings: cfg.Settings, Memory: cfg.Memory, Residuals: cfg.Residuals, Values: -1, Workers: 1,
	})
	if err != nil {
		return nil, err
	}
	quality := new(qualities)
	p.env.Metrics = quality
	values := p.cacheConfig(cfg.Residuals)
	values.Metrics = quality
	return &Estimator{proxy: p, values: cache.NewDryRun(values), quality: quality}, nil
}

// Quality returns what the codecs did to values of a role since the last call.
func (r *Estimator) Quality(role tensor.Role) Quality { return r.quality.take(role) }

var errNoTunnel = errors.New("proxy: a dry run has no tunnel")

// Short reports whether Config.Residuals was too little to remember all tensors that may lose something, so that more of
// them travelled exactly than with more memory.
func (r *Estimator) Short() bool { return r.proxy.env.Residuals.Short() }

// Close ends it.
func (r *Estimator) Close() { r.proxy.Close() }

// Flow begins a direction of a connection. The flows of an Estimator are not safe for concurrent use with each other.
func (r *Estimator) Flow(f policy.Flow) *EstimatorFlow { return r.FlowTo(f, "") }

// FlowTo is Flow for bytes to a host, which holds values that were sent to it before; "": it holds none.
func (r *Estimator) FlowTo(f policy.Flow, host string) *EstimatorFlow {
	r.flows++
	flow := &EstimatorFlow{buffers: r.proxy.env.Buffers}
	c := &path.Conn{Env: r.proxy.env, Stream: &flow.sink, Job: f.Job, Tag: frame.Tag{Number: r.flows, Mine: true}, Log: r.proxy.config.Log}
	if host != "" {
		flow.values = r.values
		c.Values = valuesOf{r.values, host}
	}
	flow.conn, flow.sender = c, send.Detached(c, f, nil)
	return flow
}

// valuesOf is what one host holds.
type valuesOf struct {
	all  *cache.DryRun
	host string
}

func (v valuesOf) Put(conn frame.Tag, p cache.Put) (r frame.ValueRef, fresh, ok bool) {
	p.Decl.Job = v.host + "/" + p.Decl.Job
	return v.all.Put(conn, p)
}

func (v valuesOf) Ready() bool { return true }

func (v valuesOf) PutParts(conn frame.Tag, p cache.Put, cuts []int) ([]frame.Part, bool) {
	return v.all.PutParts(conn, p, cuts)
}

func (valuesOf) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return nil, nil, errNoTunnel
}

func (valuesOf) Predicts(string, uint64) bool { return false }

// An EstimatorFlow is one direction of a connection in an Estimator.
type EstimatorFlow struct {
	conn    *path.Conn
	sender  *send.Sender
	sink    sink
	values  *cache.DryRun // nil: the host holds none
	buffers *memory.Pool
	sizes   FlowSizes
	last    *Size // of the bytes that were sent last
}

// FlowSizes are the sizes of a flow. Where tensors interleave, bytes that leave together count for the tensor that was whole
// last.
type FlowSizes struct {
	Tensors map[tensor.Role]*Size // by the role that the parser gives; the content check may have sent blocks exactly
	Opaque  Size
}

// A Size is a number of bytes before coding, and after it with frames.
type Size struct{ Raw, Wire int64 }

// Send sends b, which its parser has cut into segments; bytes behind them are opaque. It retains neither. An error is a
// defect of the lossless codec.
func (f *EstimatorFlow) Send(b []byte, segments []parser.Segment) error {
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
func (f *EstimatorFlow) Tensors() (sum Size) {
	for _, s := range f.sizes.Tensors {
		sum.Raw += s.Raw
		sum.Wire += s.Wire
	}
	return sum
}

// See takes bytes of a tensor of the connection's other direction, in order, which a proxy compares with this direction's.
func (f *EstimatorFlow) See(t tensor.Tensor, b []byte) { f.conn.See(t, b) }

func (f *EstimatorFlow) size(r tensor.Role) *Size {
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
func (f *EstimatorFlow) send(b []byte, s *Size, take func(buf []byte) error) error {
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

func (f *EstimatorFlow) settle(s *Size, err error) error {
	err = errors.Join(err, f.sender.Wait())
	s.Wire += f.sink.bytes
	if f.values != nil {
		s.Wire += f.values.Bytes()
	}
	f.sink.bytes, f.last = 0, s
	return err
}

// Close ends the flow and returns its sizes. A value of which the end was not sent travels verbatim.
func (f *EstimatorFlow) Close() (FlowSizes, error) {
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
