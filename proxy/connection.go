package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/receive"
	"github.com/gradproxy/gradproxy/proxy/path/send"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// resetGrace is how long bytes that were sent before an app's reset may take to leave. TCP itself promises nothing for such bytes.
const resetGrace = 5 * time.Second

// both carries the bytes of a connection both ways until both directions have ended, and returns how that came. protocols are those
// that it may speak.
func (p *Proxy) both(c *path.Conn, protocols []parser.Protocol, pc parser.Conn, lossyAggregates bool) string {
	flow := policy.Flow{Job: c.Job, Direction: policy.FromClient, LossyAggregates: lossyAggregates}
	if pc.Own == parser.Server {
		flow.Direction = policy.FromServer
	}
	sender, err := send.New(c, flow)
	if err != nil {
		c.Abort(frame.ResetByApp)
		return "app"
	}
	c.App.SetLinger(0) // should this process be killed, the kernel sends an RST and not an end that looks orderly
	q := p.quotas.of(c.Peer)
	own, other, release := parsers(protocols, pc, &metering{log: c.Log, metrics: p.config.Metrics, peer: c.Peer, time: &q.parserTime, memory: p.parsing,
		now: sinceStart}, &q.parserMemory, sender.Recognized)
	sender.Parse(own)
	receiver := receive.New(c, other)

	sent := make(chan error, 1)
	go func() { sent <- sendingEnded(c, sender.Run(), sender) }()
	errRecv := receivingEnded(c, receiver.Run())
	errSend := <-sent
	c.App.SetLinger(-1)
	c.App.Close()
	c.Stream.Close()
	c.GiveUp()
	sender.Wait() // the bytes that are still under way give back their memory, and fail at once
	receiver.Wait()
	release()
	return how(c, errSend, errRecv)
}

// sendingEnded tells the peer how the app's bytes ended.
func sendingEnded(c *path.Conn, err error, last *send.Sender) error {
	kind := frame.CloseWrite
	switch {
	case c.Aborted():
		return nil
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
	if e != nil {
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
	case errors.Is(err, path.ErrAppGone):
		c.Stream.Reset(frame.ResetByApp)
	case errors.Is(err, path.ErrAppReset):
		c.ResetApp()
	case !c.Aborted():
		c.Abort(frame.ResetByFrames)
	}
	return err
}

// how names an ending for logs and metrics, and logs an ending that is somebody's fault.
func how(c *path.Conn, send, recv error) string {
	for _, err := range []error{recv, send} {
		var byPeer *tunnel.ResetError
		switch {
		case err == nil || errors.Is(err, tunnel.ErrClosed):
		case errors.Is(err, path.ErrAppReset):
			return "reset by far app"
		case errors.Is(err, path.ErrAppGone):
			return "reset by app"
		case errors.As(err, &byPeer) && (byPeer.Code == frame.ResetByApp || byPeer.Code == tunnel.CodeClosed):
			return "reset by far app"
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
