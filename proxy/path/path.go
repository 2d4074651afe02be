// Package path has the parts that both directions of a connection share. Package send carries bytes from the app to the
// tunnel, package receive from the tunnel to the app.
package path

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// Depth is the maximum of groups or frames of one direction that are under way between the app and the tunnel.
const Depth = 8

// An Env holds the parts that all connections of a proxy share. It is made once; all fields are needed.
type Env struct {
	Buffers            *memory.Pool
	Sending, Receiving *memory.Budget // two budgets, since neither direction may wait for memory that the other holds
	MemoryWait         time.Duration  // how long a received block waits for memory
	Pool               *pipe.Pool     // the workers that encode and decode
	Cores              int            // number of workers in Pool

	Lossless    codecs.Codec
	Codecs      func(text string) (codecs.Codec, error) // makes the codecs that peers declare
	Policy      func() policy.Policy                    // returns the present policy
	Lasting     func(protocol string) bool              // reports whether the protocol's tensors outlive a connection
	Residuals   *residual.Store
	Tensors     *tensors.Table
	Connections func() int // returns the number of connections that are carried now
	Metrics     Metrics
	Frames      *frame.Counts // counts the frames that have come; nil: nobody counts them
}

// Metrics counts the work of the path. All methods must be safe for concurrent use.
type Metrics interface {
	// Sent counts raw bytes of an app for a peer, and the wire bytes that were handed to the tunnel for them.
	Sent(peer, job, codec string, role tensor.Role, raw, wire int)
	// Encoded takes the time in which a block was encoded.
	Encoded(codec string, role tensor.Role, took time.Duration)
	// Drifted takes the norm of a block's residual over the norm of the block's value (ratio), and over the norm of the
	// value with the earlier residual, which was encoded (relative).
	Drifted(codec string, role tensor.Role, ratio, relative float64)
	// Began counts a value of a tensor whose first bytes the app has sent.
	Began(t tensor.Tensor)
	// Adapted takes the sparsity that an adaptive codec had for a block.
	Adapted(codec string, role tensor.Role, sparsity float64)
	// Guarded counts a block that travels exactly since the receiver is too far behind. first says that no block of its
	// tensor was guarded before.
	Guarded(codec string, role tensor.Role, first bool)
	// FellBack counts a block that does not travel by the codec that it should have had.
	FellBack(codec string, role tensor.Role, why tensor.Reason)
	// Doubted counts a job that loses nothing more, since one of its sums is no gradient.
	Doubted(reason string)
	// GaveUp counts a parser that has ended with an error.
	GaveUp(protocol string)

	// Decoded takes the time in which a block was decoded. role is Unknown if a decoder serves several roles.
	Decoded(codec string, role tensor.Role, took time.Duration)
	// Delivered counts n bytes that were delivered to the app.
	Delivered(peer, job string, n int)
}

// A Writer takes the bytes of one direction of a tunnel's stream.
type Writer interface {
	Write(p []byte) (int, error)
	// WriteMore is like Write, but p may wait for the next Write or Flush.
	WriteMore(p []byte) (int, error)
	Flush()
	// Path returns the round-trip time and the rate, in bytes per second, of the path to the peer; 0: not measured yet.
	Path() (rtt time.Duration, rate float64)
}

// A Stream is a connection's part of the tunnel: ordered bytes both ways that survive the loss of a carrier.
// *tunnel.Stream implements it and documents its methods.
type Stream interface {
	frame.ChunkReader
	Writer
	CloseWrite() error
	Close() error
	Reset(code tunnel.Code)
}

// Values has the values that are shared with a peer; *cache.Peer implements it. A connection is named by its tag.
type Values interface {
	// Ready reports whether values can be put. If they cannot yet, Ready begins to make that possible.
	Ready() bool
	// Put puts a value into the peer's store, unless the peer holds it already, and returns its name. fresh says that
	// the peer did not hold the value. If ok is false the block must travel by itself.
	Put(conn frame.Tag, v cache.Put) (r frame.ValueRef, fresh, ok bool)
	// PutParts puts a value into the peer's store, and returns the parts of which the value consists: parts of values
	// that the peer holds, and bytes. No part goes beyond one of cuts. If ok is false the bytes must travel by
	// themselves.
	PutParts(conn frame.Tag, v cache.Put, cuts []int) (parts []frame.Part, ok bool)
	// Await returns the bytes of a value that the peer has put or is about to put. When gone is closed it ends the wait
	// with an error. The caller must not change the bytes, and must call release once they are delivered.
	Await(conn frame.Tag, r frame.ValueRef, gone <-chan struct{}) (data []byte, release func(), err error)
	// Predicts reports whether the peer wants the values of the tensor with that Base even if coding them saves
	// nothing: they predict values of the opposite direction.
	Predicts(job string, base uint64) bool
}

// A Shadow looks at the bytes that a connection sends. Only the sender calls its methods, which must neither wait nor
// retain b.
type Shadow interface {
	// See takes bytes of a tensor, in order.
	See(f policy.Flow, t *tensor.Tensor, b []byte)
	// Close says that no more bytes come for a while, or ever.
	Close()
}

// A Conn is a connection of an app that is carried to a peer. Its exported fields must not change once it is used.
type Conn struct {
	Env        *Env
	App        *app.Conn
	Stream     Stream
	Peer       string
	PeerCodecs []string // names of the codecs that the peer has; nil: all
	Job        string
	From, To   netip.Addr // addresses from which and to which the own app's bytes go, as apps see them
	Tag        frame.Tag  // names the connection on value streams
	Values     Values     // nil: no values are shared
	Shadow     Shadow     // nil: nobody looks at the bytes
	Log        *slog.Logger
	Sums       residual.Sums // the app's inputs into sums, until the results come
	// Pace waits until so many encoded bytes of the peer may be decoded, to so many bytes, or until gone is closed.
	// nil: they may be decoded at once.
	Pace func(encoded, decoded int, gone <-chan struct{})
	// Schedule waits until work on a frame of the peer may begin, and returns a function that must be called at the end
	// of the work. Only the receiver calls it. nil: work may begin at once.
	Schedule func() (end func())

	// The peer's shares of the two budgets; nil: the connection has none.
	SendShare, ReceiveShare *memory.Share

	rest      restLock // guards the fields down to received, and the app's read deadline
	rests     bool     // Rest was called
	sleeps    bool     // the app's read deadline ends the wait of Sleep
	restsNext bool     // the connection is to rest as soon as the receiver has ended
	received  bool     // the receiver has delivered all that it will

	Gone     chan struct{} // closed by GiveUp; nil: never
	goneOnce sync.Once
	aborted  atomic.Bool
	appGone  atomic.Bool
	finSent  atomic.Bool
}

var (
	// ErrAppGone says that the own app's connection no longer takes bytes, or gives any.
	ErrAppGone = errors.New("proxy: the app's connection is gone")
	// ErrAppReset says that the far app reset the connection.
	ErrAppReset = errors.New("proxy: the far app reset the connection")
	// ErrRest says that a direction has come to rest: nothing of it is under way, and no more is read.
	ErrRest = errors.New("proxy: the connection is at rest")
)

// Lacks reports whether the peer lacks the codec with that text.
func (c *Conn) Lacks(text string) bool {
	return c.PeerCodecs != nil && !slices.Contains(c.PeerCodecs, coder.Name(text))
}

// SharesValues reports whether values are shared with the peer.
func (c *Conn) SharesValues() bool { return c.Values != nil && !c.Lacks(cache.Name) }

// SharesParts reports whether parts of values are shared with the peer.
func (c *Conn) SharesParts() bool { return c.SharesValues() && !c.Lacks(cache.Parts) }

// Doubt notes that a sum of the job is no gradient, which ends all loss in the job.
func (c *Conn) Doubt(job *residual.Job, t tensor.Tensor, v tensor.Verdict) {
	if job.Doubt() {
		c.Env.Metrics.Doubted(v.String())
		c.Log.Warn("a sum of the job is no gradient, though the user says so: nothing of the job loses anything until it has connected anew",
			"job", c.Job, "tensor", t.Key, "bytes", t.Size, "reason", v)
	}
}

// See takes bytes of a tensor of either direction, in order, and compares the result of a sum with the app's input.
func (c *Conn) See(t tensor.Tensor, b []byte) {
	if t.Part == 0 || !t.Whole {
		return
	}
	if of, job, v := c.Sums.See(t, b); job != nil && v.Foreign() {
		c.Doubt(job, of, v)
	}
}

// Abort resets the app's connection and the stream: the app must see an error, and never an end that looks orderly. A
// connection that another process has handed over may have no stream yet.
func (c *Conn) Abort(code tunnel.Code) {
	c.GiveUp()
	if !c.aborted.Swap(true) {
		app.Reset(c.App)
		if c.Stream != nil {
			c.Stream.Reset(code)
		}
	}
}

// Taken returns the number of bytes that the app's host has taken from the proxy so far, or 0 if it is not known.
func (c *Conn) Taken() uint64 { return app.Taken(c.App) }

// Aborted reports whether Abort or ResetApp was called.
func (c *Conn) Aborted() bool { return c.aborted.Load() }

// ResetApp passes the far app's reset on.
func (c *Conn) ResetApp() {
	c.aborted.Store(true)
	app.Reset(c.App)
}

// GiveUp ends waits for memory and for values that were to be delivered.
func (c *Conn) GiveUp() {
	if c.Gone != nil {
		c.goneOnce.Do(func() { close(c.Gone) })
	}
}

// WriteFailed notes that the app takes no more bytes.
func (c *Conn) WriteFailed() { c.appGone.Store(true) }

// SendFIN tells the app that the far app has ended its direction. An app that is gone needs no FIN.
func (c *Conn) SendFIN() {
	c.finSent.Store(true)
	c.App.CloseWrite()
}

// WasReset reports whether the end of the app's bytes is that of a reset connection, rather than a FIN: a write has
// failed, or the kernel says that the connection is closed although this proxy has sent no FIN.
func (c *Conn) WasReset() bool {
	return c.appGone.Load() || app.ClosedByReset(c.App) && !c.finSent.Load() // in this order: the FIN is noted before it is sent
}
