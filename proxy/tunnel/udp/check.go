package udp

import "time"

// Strays reports whether the datagram that Next has returned last came from another address than the connection has, so
// that Arrived counts.
func (c *Conn) Strays() bool { return c.now.path != nil }

// Arrived tells an accepted connection that the datagram that Next has returned last holds an authentic record. newest:
// none that was sealed later has come before. If the newest one came from another address than the connection has, the
// connection checks that address: RFC 9146, section 6. If it came from the connection's own address, the peer is still
// there, and the connection's checks of other addresses end. The reader must call it.
func (c *Conn) Arrived(newest bool) {
	p := c.now.path
	switch {
	case !newest:
	case p == nil || p.far == *c.remote.Load():
		c.Stays()
	default:
		if m, ok := c.moving.challenge(p.far, time.Now()); ok {
			c.tell(m, p)
		}
	}
}

// Stays tells an accepted connection that the newest authentic record has come from its own address.
func (c *Conn) Stays() { c.moving.stays() }

// Route takes a message of a return routability check that was in the datagram that Next has returned last. The reader
// must call it.
func (c *Conn) Route(m RoutingMessage) {
	c.Heard()
	p := c.now.path
	switch m[0] {
	case pathChallenge: // the answer must take the same path: RFC 9853, section 5
		c.tell(m.answer(), p)
	case pathResponse:
		if p != nil && c.moving.passed(m, p.far) {
			c.follow(p)
		}
	}
}

// tell sends a message by a path; nil: by the connection's own. It may be lost, as each datagram may.
func (c *Conn) tell(m RoutingMessage, p *path) {
	d, err := c.moving.seal(m)
	switch {
	case err != nil: // the carrier is worn, and about to end
	case p == nil:
		_, _ = c.Write(d)
	default:
		c.left(len(d), 1)
		_ = c.socket.Load().write(d, p.source, p.far)
	}
}
