package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/receive"
	"github.com/gradproxy/gradproxy/proxy/path/send"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// resetGrace is how long bytes that were sent before an app's reset may take to leave. TCP itself promises nothing for
// such bytes.
const resetGrace = 5 * time.Second

// A passage is the state of a connection that outlives its streams: the parsers, and the sender of the last stream.
type passage struct {
	flow       policy.Flow
	own, other parser.Parser
	sender     *send.Sender // nil: there was no stream yet
	release    func()       // gives back the parsers' memory
}

// newPassage returns the state of a connection whose bytes may be of protocols.
func (p *Proxy) newPassage(c *path.Conn, protocols []parser.Protocol, pc parser.Conn, lossyAggregates bool) *passage {
	q := p.quotas.Of(c.Peer)
	c.Pace, c.Schedule = q.Pace, p.quotas.Schedule(q)
	t := &passage{flow: policy.Flow{Peer: c.Peer, Job: c.Job, Direction: policy.FromClient, LossyAggregates: lossyAggregates}}
	if pc.Own == parser.Server {
		t.flow.Direction = policy.FromServer
	}
	t.own, t.other, t.release = p.quotas.Parsers(c.Peer, protocols, pc, c.Log, p.config.Metrics, func(protocol string) { t.sender.Recognized(protocol) })
	return t
}

// both carries the bytes of a connection both ways until both directions have ended, and returns how that came; or
// until both that have not ended are at rest.
func (t *passage) both(c *path.Conn) (how string, rests bool) {
	sender, err := send.New(c, t.flow)
	if err != nil {
		c.Abort(frame.ResetByApp)
		return t.abandonAs("app"), false
	}
	c.App.SetLinger(0) // should this process be killed, the kernel sends an RST and not an end that looks orderly
	if t.sender == nil {
		sender.Parse(t.own)
	} else {
		sender.Continue(t.sender)
	}
	t.sender = sender
	receiver := receive.New(c, t.other)

	sent, received := make(chan error, 1), make(chan struct{})
	go func() {
		err := sendingEnded(c, sender.Run(), sender)
		if errors.Is(err, path.ErrRest) {
			sender.Unstick(received, receiver.Stuck)
		}
		sent <- err
	}()
	errRecv := receivingEnded(c, receiver.Run())
	close(received)
	errSend := <-sent
	if rests = atRest(c, errSend, errRecv); rests {
		c.Stream.Close()
		t.other = receiver.Learner()
		return "", true
	}
	if c.Aborted() { // Abort may still be on its way to the app's reset
		app.Reset(c.App)
	} else {
		c.App.SetLinger(-1)
		c.App.Close()
	}
	c.Stream.Close()
	c.GiveUp()
	sender.Wait() // the bytes that are still under way give back their memory, and fail at once
	receiver.Wait()
	if errors.Is(errSend, path.ErrRest) {
		sender.Forget()
	}
	return endedHow(c, errSend, errRecv), false
}

// unsent reports whether bytes of the app wait for the connection's next stream.
func (t *passage) unsent() bool { return t.sender != nil && t.sender.Unsent() }

// atRest reports whether a connection whose directions have ended like that can go on with another stream.
func atRest(c *path.Conn, send, recv error) bool {
	rests := func(err error) bool { return errors.Is(err, path.ErrRest) }
	return !c.Aborted() && (rests(send) && (recv == nil || rests(recv)) || rests(recv) && send == nil)
}

// handedOver is how a connection has ended here that another process carries on.
const handedOver = "handed over"

// abandon ends a connection at rest that does not go on here, and returns how that came.
func (t *passage) abandon(c *path.Conn, err error) string {
	if errors.Is(err, handover.ErrMoved) {
		c.App.Close() // the other process has the socket too
		return handedOver
	}
	c.Log.Warn("connection reset", "reason", "tunnel", "err", err)
	c.ResetApp()
	return t.abandonAs("tunnel")
}

// abandonAs drops the state of the last sender, which no other one continues, and returns how.
func (t *passage) abandonAs(how string) string {
	if t.sender != nil {
		t.sender.Forget()
	}
	return how
}

// sendingEnded tells the peer how the app's bytes ended.
func sendingEnded(c *path.Conn, err error, last *send.Sender) error {
	kind := frame.CloseWrite
	switch {
	case c.Aborted():
		return nil
	case errors.Is(err, path.ErrRest):
		kind = frame.Rest
	case errors.Is(err, path.ErrAppGone):
		kind = frame.Reset
		hurry := time.AfterFunc(resetGrace, func() { c.Stream.Reset(frame.ResetByApp) })
		defer hurry.Stop()
	case err != nil:
		c.Abort(frame.ResetByFrames)
		return err
	}
	e := last.Wait()
	if e == nil {
		_, e = c.Stream.Write(frame.Append(nil, frame.Frame{Kind: kind}))
	}
	if e == nil {
		e = c.Stream.CloseWrite()
	}
	switch {
	case e != nil && kind == frame.Reset: // the peer has come first, or the tunnel is lost: the other direction says so
		c.Abort(frame.ResetByApp)
		return err
	case e != nil:
		c.Abort(frame.ResetByFrames)
		return fmt.Errorf("proxy: tunnel: %w", e)
	}
	if kind == frame.Reset {
		c.Stream.Close() // nothing can be delivered any more
	}
	return err
}

// receivingEnded tells the app how the far app's bytes ended.
func receivingEnded(c *path.Conn, err error) error {
	switch {
	case err == nil:
		c.SendFIN()
	case errors.Is(err, path.ErrRest):
	case errors.Is(err, path.ErrAppGone):
		c.Stream.Reset(frame.ResetByApp)
	case errors.Is(err, path.ErrAppReset):
		c.ResetApp()
	case errors.Is(err, tunnel.ErrClosed): // by sendingEnded, since the app is gone; or the Endpoint has closed, and then nobody hears of it
		c.Abort(frame.ResetByApp)
	case !c.Aborted():
		c.Abort(frame.ResetByFrames)
	}
	return err
}

// endedHow names an ending for logs and metrics, and logs an ending that is somebody's fault.
func endedHow(c *path.Conn, send, recv error) string {
	for _, err := range []error{recv, send} {
		var byPeer *tunnel.ResetError
		switch {
		case err == nil || errors.Is(err, tunnel.ErrClosed) || errors.Is(err, path.ErrRest):
		case errors.Is(err, path.ErrAppReset):
			return "reset by far app"
		case errors.Is(err, path.ErrAppGone):
			return "reset by app"
		case errors.As(err, &byPeer) && (byPeer.Code == frame.ResetByApp || byPeer.Code == tunnel.CodeClosed):
			return "reset by far app"
		case byPeer != nil && byPeer.Remote && byPeer.Code == frame.ResetByFrames && errors.Is(send, path.ErrAppGone):
			return "reset by app" // which the far app's reset has met: a peer of an earlier version says no more
		case errors.Is(err, frame.ErrFrame), errors.Is(err, parser.ErrReset):
			c.Log.Error("connection reset", "reason", "protocol", "err", err)
			return "protocol"
		case errors.Is(err, memory.ErrMemory):
			c.Log.Error("connection reset", "reason", "memory", "err", err)
			return "memory"
		default:
			c.Log.Warn("connection reset", "reason", "tunnel", "err", err)
			return "tunnel"
		}
	}
	return "closed"
}
