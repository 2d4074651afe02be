package path

import (
	"os"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// past is a read deadline that ends every wait.
var past = time.Unix(1, 0)

// Rest brings the connection to rest: the sender reads no more from the app, sends the bytes that it has read, and then
// sends a Rest frame; the receiver goes on up to the peer's Rest frame. Rest may be called more than once.
func (c *Conn) Rest() {
	c.rest.Lock()
	defer c.rest.Unlock()
	if !c.rests {
		c.rests = true
		c.App.SetReadDeadline(past)
		c.App.Wake()
	}
}

// RestNext(true) brings the connection to rest as Rest does, but only after the receiver has delivered all bytes up to
// the peer's Rest frame. Until then the sender goes on, so that an app that writes before it reads does not hold the
// receiver up. RestNext(false) takes that back.
func (c *Conn) RestNext(next bool) {
	c.rest.Lock()
	c.restsNext = next
	now := next && c.received
	c.rest.Unlock()
	if now {
		c.Rest()
	}
}

// Received notes that the receiver has delivered its last byte, and whether the peer's sender is at rest.
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

// A notifier is a Stream that calls f when it has something to read. *tunnel.Stream implements it.
type notifier interface{ Notify(f func()) }

// Sleep arranges that awake is called once, on a goroutine of its own, when the app or the stream has bytes or an end,
// or when the connection is to rest. Nobody may read from the app or the stream until then. Sleep returns false if the
// connection cannot sleep; then awake is not called.
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

// Resumed returns the Conn by which a connection at rest goes on over the stream s. After it only c.Rest may be called.
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

// KeepFIN notes that another process, which has handed the connection over, has told the app so.
func (c *Conn) KeepFIN() { c.finSent.Store(true) }
