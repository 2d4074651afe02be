// Package path has the parts that both directions of a connection share on the way between an app and the tunnel.
// Package send is the way from the app to the tunnel, package receive the way back.
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

// Depth is how many groups or frames of one direction may be under way between the app and the tunnel.
const Depth = 8

// An Env holds the parts that all connections of a proxy share. It is made once; all fields are needed.
type Env struct {
	Buffers            *memory.Pool
	Sending, Receiving *memory.Budget // two, since neither direction may wait for memory that the other holds
	MemoryWait         time.Duration  // how long a received block waits for memory
	Pool               *pipe.Pool     // of the cores that encode and decode
	Cores              int            // in Pool

	Lossless    codecs.Codec
	Codecs      func(text string) (codecs.Codec, error) // makes the codecs that peers declare
	Policy      func() policy.Policy                    // the policy of the moment
	Lasting     func(protocol string) bool              // whether the protocol's tensors outlive a connection
	Residuals   *residual.Store
	Tensors     *tensors.Table
	Connections func() int // carried now
	Metrics     Metrics
	Frames      *frame.Counts // of frames that have come; nil: nobody counts them
}

// Metrics counts the work of the path. All methods are safe for concurrent use.
type Metrics interface {
	// Sent counts bytes of an app for a peer, and bytes that were handed to the tunnel for them.
	Sent(peer, job, codec string, role tensor.Role, raw, wire int)
	Encoded(codec string, role tensor.Role, took time.Duration)
	// Drifted takes the norm of a block's residual over the norm of its value, and over the norm of the value that was
	// encoded.
	Drifted(codec string, role tensor.Role, ratio, relative float64)
	Began(t tensor.Tensor)                                      // the next value of a tensor of the app
	Adapted(codec string, role tensor.Role, sparsity float64)   // of a block of a codec that adapts
	Guarded(codec string, role tensor.Role, first bool)         // a block travels exactly since it is too far behind, the first of its tensor
	FellBack(codec string, role tensor.Role, why tensor.Reason) // codec: which would have been used
	Doubted(reason string)                                      // a job loses nothing more, since one of its sums is no gradient
	GaveUp(protocol string)                                     // a parser has ended with an error

	Decoded(codec string, role tensor.Role, took time.Duration) // role: Unknown where a decoder serves several
	Delivered(peer, job string, n int)                          // bytes to the app
}

// A Writer takes the bytes of one direction of a tunnel's stream.
type Writer interface {
	Write(p []byte) (int, error)
	WriteMore(p []byte) (int, error) // as Write, but p may wait for the next Write or Flush
	Flush()
	Path() (rtt time.Duration, rate float64) // as measured; 0: not yet
}

// A Stream is a connection's part of the tunnel: ordered bytes both ways that survive the loss of a carrier.
// *tunnel.Stream is one; its methods are documented there.
type Stream interface {
	frame.ChunkReader
	Writer
	CloseWrite() error
	Close() error
	Reset(code tunnel.Code)
}

// Values are the values that are shared with a peer, as package cache keeps them. Connections are named by their tags.
type Values interface {
	// Ready reports whether values can be put, and has that be so soon.
	Ready() bool
	// Put has the peer hold a value and returns its name. fresh: the peer did not hold it yet. !ok: the block must
	// travel by itself.
	Put(conn frame.Tag, v cache.Put) (r frame.ValueRef, fresh, ok bool)
	// PutParts has the peer hold a value, and returns the parts of held values, and others, that the value is made of.
	// No part goes beyond one of cuts. !ok: the bytes must travel by themselves.
	PutParts(conn frame.Tag, v cache.Put, cuts []int) (parts []frame.Part, ok bool)
	// Await returns the bytes of a value that the peer has put, or is about to. gone ends the wait. The caller must not
	// change the bytes, and must call release once they are delivered.
	Await(conn frame.Tag, r frame.ValueRef, gone <-chan struct{}) (data []byte, release func(), err error)
	// Predicts reports whether the peer wants the values of a tensor, by its Base, whatever they gain themselves.
	Predicts(job string, base uint64) bool
}

// A Shadow looks at the bytes that a connection sends. Its methods are called by the sender alone, and must neither
// wait nor retain b.
type Shadow interface {
	See(f policy.Flow, t *tensor.Tensor, b []byte) // bytes of a tensor, in order
	Close()                                        // no more bytes come for a while, or ever
}

// A Conn is a connection of an app that is carried to a peer. Its exported fields must not change once it is used.
type Conn struct {
	Env        *Env
	App        *app.Conn
	Stream     Stream
	Peer       string
	PeerCodecs []string // names of the codecs that the peer has; nil: all
	Job        string
	From, To   netip.Addr // of the own app's bytes, as apps see them
	Tag        frame.Tag  // how value streams name it
	Values     Values     // nil: none are shared
	Shadow     Shadow     // nil: nobody looks
	Log        *slog.Logger
	Sums       residual.Sums // the app's inputs into sums, until the results come
	// Pace waits until encoded bytes of the peer may become decoded bytes, or gone is closed; nil: they may at once.
	Pace func(encoded, decoded int, gone <-chan struct{})
	// Schedule waits until work on a frame of the peer may begin, and returns the function that ends it; nil: it may at
	// once. The receiver alone calls it.
	Schedule func() (end func())

	// The peer's shares of the two budgets; nil: the connection has none.
	SendShare, ReceiveShare *memory.Share

	rest      restLock // of rests, and of the app's read deadline
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

// Lacks reports whether the peer does not have a codec, by its text.
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

// See takes bytes of a tensor as they pass, in either direction and in order. It compares the result of a sum with the
// app's input.
func (c *Conn) See(t tensor.Tensor, b []byte) {
	if t.Part == 0 || !t.Whole {
		return
	}
	if of, job, v := c.Sums.See(t, b); job != nil && v.Foreign() {
		c.Doubt(job, of, v)
	}
}

// Abort breaks both sides: the app must see an error and never an end that looks orderly. A connection that another
// process has handed over may have no stream yet.
func (c *Conn) Abort(code tunnel.Code) {
	c.GiveUp()
	if !c.aborted.Swap(true) {
		app.Reset(c.App)
		if c.Stream != nil {
			c.Stream.Reset(code)
		}
	}
}

// Taken returns how many bytes the app's host has taken from the proxy so far; 0: it is not known.
func (c *Conn) Taken() uint64 { return app.Taken(c.App) }

// Aborted reports whether the connection is broken already.
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

// WasReset reports, at the end of the app's bytes, that this is the end of a reset connection and no FIN: a write has
// failed, or the kernel holds the connection for closed though no FIN of ours has ended it.
func (c *Conn) WasReset() bool {
	return c.appGone.Load() || app.ClosedByReset(c.App) && !c.finSent.Load() // in this order: the FIN is noted before it is sent
}
