package path

import (
	"os"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// past is a read deadline that ends every wait.
var past = time.Unix(1, 0)

// Rest has the connection come to rest: the sender reads no more from the app, sends the bytes that it has read, and
// then a Rest frame; the receiver goes on up to the peer's Rest frame. It may be called more than once.
func (c *Conn) Rest() {
	c.rest.Lock()
	defer c.rest.Unlock()
	if !c.rests {
		c.rests = true
		c.App.SetReadDeadline(past)
		c.App.Wake()
	}
}

// RestNext has the connection come to rest as Rest does, but once its receiver has delivered all that the peer sends,
// up to the peer's Rest frame; false takes that back. Until then the sender goes on, so that an app that writes before
// it reads does not hold the receiver up.
func (c *Conn) RestNext(next bool) {
	c.rest.Lock()
	c.restsNext = next
	now := next && c.received
	c.rest.Unlock()
	if now {
		c.Rest()
	}
}

// Received notes that the receiver has delivered all that it will, and whether the peer rests.
func (c *Conn) Received(peerRests bool) {
	c.rest.Lock()
	c.received = true
	now := peerRests || c.restsNext
	c.rest.Unlock()
	if now {
		c.Rest()
	}
}

// Rests reports whether Rest was called.
func (c *Conn) Rests() bool {
	c.rest.Lock()
	defer c.rest.Unlock()
	return c.rests
}

// SetReadDeadline limits reads from the app. It does nothing once Rest was called.
func (c *Conn) SetReadDeadline(at time.Time) error {
	c.rest.Lock()
	defer c.rest.Unlock()
	if c.rests {
		return nil
	}
	return c.App.SetReadDeadline(at)
}

// A notifier is a Stream that tells when it has something to read; *tunnel.Stream is one.
type notifier interface{ Notify(f func()) }

// Sleep has awake called once, on a goroutine of its own, when either the app or the stream has bytes or an end, or
// when the connection is to rest. Nobody may read from either until then. false: the connection cannot sleep, and awake
// will not be called.
func (c *Conn) Sleep(in *app.Sleepers, awake func()) bool {
	s, ok := c.Stream.(notifier)
	if !ok {
		return false
	}
	c.rest.Lock()
	defer c.rest.Unlock()
	if c.rests || !in.Sleep(c.App, func() { s.Notify(nil); awake() }) {
		return false
	}
	s.Notify(c.App.Wake)
	return true
}

// Resumed returns the Conn with which a connection at rest goes on over another stream. c must not be used any more,
// but for Rest.
func (c *Conn) Resumed(s Stream) *Conn {
	n := &Conn{Env: c.Env, App: c.App, Stream: s, Peer: c.Peer, PeerCodecs: c.PeerCodecs, Job: c.Job, From: c.From, To: c.To, Tag: c.Tag, Values: c.Values, Shadow: c.Shadow, Log: c.Log, Pace: c.Pace, Schedule: c.Schedule,
		SendShare: c.SendShare, ReceiveShare: c.ReceiveShare, Gone: make(chan struct{})}
	n.finSent.Store(c.finSent.Load())
	n.App.SetReadDeadline(time.Time{})
	n.App.Settle()
	return n
}

// Done is closed when the connection has been given up.
func (c *Conn) Done() <-chan struct{} { return c.Gone }

// File returns another descriptor of the app's socket, which the caller must close.
func (c *Conn) File() (*os.File, error) { return c.App.File() }

// FINSent reports whether the app was told that the far app has ended its direction.
func (c *Conn) FINSent() bool { return c.finSent.Load() }

// KeepFIN notes, of a connection that another process has handed over, that the app was told so.
func (c *Conn) KeepFIN() { c.finSent.Store(true) }
