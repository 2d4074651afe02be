package proxy

import (
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A Stream is what the tunnel gives a connection: ordered bytes both ways that survive the loss of a carrier.
// *tunnel.Stream is one; its methods are documented there.
type Stream interface {
	ReadChunk() ([]byte, error)
	Write(p []byte) (int, error)
	WriteMore(p []byte) (int, error)
	Flush()
	CloseWrite() error
	Close() error
	Reset(code tunnel.Code)
	Path() (rtt time.Duration, rate float64)
}

// A connection is one of an app's, carried to a peer.
type connection struct {
	shared          *Proxy
	conn            *app.Conn // to the own app
	stream          Stream    // to the far proxy
	peer            string
	codecs          []string // names of those that the peer has; nil: all
	job             string
	lossyAggregates bool      // of the job
	tag             frame.Tag // how value streams name it
	log             *slog.Logger
	gone            chan struct{} // closed once nothing will be delivered any more
	goneOnce        sync.Once
	aborted         atomic.Bool
	appGone         atomic.Bool // a write to the app has failed
	finSent         atomic.Bool // the app was sent a FIN
}

// lacks reports whether the peer does not have a codec, by its text.
func (c *connection) lacks(text string) bool {
	return c.codecs != nil && !slices.Contains(c.codecs, name(text))
}

// resetGrace is how long what was sent before an app's reset may take to leave. TCP itself promises nothing for such bytes.
const resetGrace = 5 * time.Second

// carry moves bytes both ways until both directions have ended, and returns how that came.
func (c *connection) carry(pc parser.Conn) string {
	send := &sender{connection: c, pipe: pipe.New(c.shared.pool, pipeDepth, func(error) { c.abort(frame.ResetByFrames) })}
	send.lender = mem.NewAllocator(&c.shared.buffers, c.shared.budget, &c.shared.cache.Peer(c.peer).Sending)
	var err error
	if send.app, err = app.NewReader(c.conn, &send.lender, send.flush); err != nil {
		c.abort(frame.ResetByApp)
		return "app"
	}
	c.conn.SetLinger(0) // should this process be killed, the kernel sends an RST and not an end that looks orderly
	send.flow = policy.Flow{Job: c.job, Direction: policy.FromClient, LossyAggregates: c.lossyAggregates}
	if pc.Own == parser.Server {
		send.flow.Direction = policy.FromServer
	}
	recv := newReceiver(c, c.stream)
	send.parser, recv.learner = c.shared.parsers(pc, func(name string) { send.flow.Protocol = name })

	sent := make(chan error, 1)
	go func() { sent <- c.sendingEnded(send.run(), send.pipe) }()
	errRecv := c.receivingEnded(recv.run())
	errSend := <-sent
	c.conn.SetLinger(-1)
	c.conn.Close()
	c.stream.Close()
	c.giveUp()
	send.pipe.Wait() // what is still under way gives back its memory, and fails at once
	recv.pipe.Wait()
	return c.how(errSend, errRecv)
}

// sendingEnded tells the peer how the app's bytes ended.
func (c *connection) sendingEnded(err error, last *pipe.Pipe) error {
	kind := frame.CloseWrite
	switch {
	case c.aborted.Load():
		return nil
	case errors.Is(err, errAppGone):
		kind = frame.Reset
		hurry := time.AfterFunc(resetGrace, func() { c.stream.Reset(frame.ResetByApp) })
		defer hurry.Stop()
	case err != nil:
		c.abort(frame.ResetByFrames)
		return err
	}
	e := last.Wait()
	if e == nil {
		_, e = c.stream.Write(frame.Append(nil, frame.Frame{Kind: kind}))
	}
	if e == nil {
		e = c.stream.CloseWrite()
	}
	if e != nil {
		c.abort(frame.ResetByFrames)
		return fmt.Errorf("proxy: tunnel: %w", e)
	}
	if kind == frame.Reset {
		c.stream.Close() // nothing can be delivered any more
	}
	return err
}

// receivingEnded tells the app how the far app's bytes ended.
func (c *connection) receivingEnded(err error) error {
	switch {
	case err == nil:
		c.finSent.Store(true)
		c.conn.CloseWrite() // an app that is gone needs no FIN
	case errors.Is(err, errAppGone):
		c.stream.Reset(frame.ResetByApp)
	case errors.Is(err, errAppReset):
		c.aborted.Store(true)
		app.Reset(c.conn)
	case !c.aborted.Load():
		c.abort(frame.ResetByFrames)
	}
	return err
}

// abort breaks both sides: the app must see an error and never an end that looks orderly.
func (c *connection) abort(code tunnel.Code) {
	c.giveUp()
	if !c.aborted.Swap(true) {
		app.Reset(c.conn)
		c.stream.Reset(code)
	}
}

// giveUp ends waits for shared values that were to be delivered.
func (c *connection) giveUp() {
	if c.gone != nil {
		c.goneOnce.Do(func() { close(c.gone) })
	}
}

// how names an ending for logs and metrics, and logs those that are somebody's fault.
func (c *connection) how(send, recv error) string {
	for _, err := range []error{recv, send} {
		var byPeer *tunnel.ResetError
		switch {
		case err == nil || errors.Is(err, tunnel.ErrClosed):
		case errors.Is(err, errAppReset):
			return "reset by far app"
		case errors.Is(err, errAppGone):
			return "reset by app"
		case errors.As(err, &byPeer) && (byPeer.Code == frame.ResetByApp || byPeer.Code == tunnel.CodeClosed):
			return "reset by far app"
		case errors.Is(err, frame.ErrFrame), errors.Is(err, parser.ErrReset):
			c.log.Error("connection reset", "reason", "protocol", "err", err)
			return "protocol"
		case errors.Is(err, mem.ErrMemory):
			c.log.Error("connection reset", "reason", "memory", "err", err)
			return "memory"
		default:
			c.log.Warn("connection reset", "reason", "tunnel", "err", err)
			return "tunnel"
		}
	}
	return "closed"
}

// wasReset reports, at the end of what the app has sent, that this is the end of a reset connection and no FIN: a write has
// failed, or the kernel holds the connection for closed though no FIN of ours has ended it.
func (c *connection) wasReset() bool {
	return c.appGone.Load() || !c.finSent.Load() && app.ClosedByReset(c.conn)
}
