package path

import "time"

// past is a read deadline that ends every wait.
var past = time.Unix(1, 0)

// Rest has the connection come to rest: the sender reads no more from the app, sends what it has read, and then a Rest frame; the receiver goes on up to the
// peer's Rest frame. It may be called more than once.
func (c *Conn) Rest() {
	c.rest.Lock()
	defer c.rest.Unlock()
	if !c.rests {
		c.rests = true
		c.App.SetReadDeadline(past)
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

// Resumed returns the Conn with which a connection at rest goes on over another stream. c must not be used any more, but for Rest.
func (c *Conn) Resumed(s Stream) *Conn {
	n := &Conn{Env: c.Env, App: c.App, Stream: s, Peer: c.Peer, PeerCodecs: c.PeerCodecs, Job: c.Job, Tag: c.Tag, Values: c.Values, Log: c.Log, Pace: c.Pace,
		SendShare: c.SendShare, ReceiveShare: c.ReceiveShare, Gone: make(chan struct{})}
	n.finSent.Store(c.finSent.Load())
	n.App.SetReadDeadline(time.Time{})
	n.App.Settle()
	return n
}

// FINSent reports whether the app was told that the far app has ended its direction.
func (c *Conn) FINSent() bool { return c.finSent.Load() }

// KeepFIN notes, of a connection that another process has handed over, that the app was told so.
func (c *Conn) KeepFIN() { c.finSent.Store(true) }
