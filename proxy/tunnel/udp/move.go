package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const moveWithin = 3 * time.Second // of one attempt

var errHeard = errors.New("the other side is heard again")

// move goes on over a new socket, which has this host's address of now, if the listener agrees.
func (c *Conn) move(ctx context.Context, count uint64) {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	s, remote, err := connected(ctx, c.address, c.buffers)
	if err != nil {
		return
	}
	gone := false
	err = s.exchange(ctx, c.nonce, func(cookie []byte) (message, error) {
		if c.moving.idle() < strayAfter {
			return message{}, errHeard
		}
		request := message{kind: msgMove, nonce: c.nonce, cookie: cookie}
		request.prove(c.moving.key, count)
		return request, nil
	}, func(answer *message) bool {
		gone = answer.kind == msgGone
		if answer.kind != msgMoved {
			return gone
		}
		n, ok := answer.proved(c.moving.key)
		return ok && n == count
	})
	if refused(err) || gone {
		c.moving.lost.Store(true)
	}
	if err != nil || gone || !c.adopt(s, remote) {
		s.Close()
	}
}

// adopt has the connection go on over a socket, unless it has ended.
func (c *Conn) adopt(s *socket, remote netip.AddrPort) bool {
	c.moving.mu.Lock()
	defer c.moving.mu.Unlock()
	if c.moving.ctx.Err() != nil {
		return false
	}
	old := c.socket.Load()
	far := host(old.LocalAddr()) != host(s.LocalAddr()) || c.remote.Load().Addr() != remote.Addr()
	s.SetReadDeadline(c.readBy)
	c.socket.Store(s)
	c.remote.Store(&remote)
	c.way.moveTo(s, netip.AddrPort{}, nil)
	old.Close() // a Read of it goes on with the new one
	go c.moving.moved(far)
	return true
}

// host returns the address of a without its port.
func host(a net.Addr) netip.Addr { return a.(*net.UDPAddr).AddrPort().Addr().Unmap() }
