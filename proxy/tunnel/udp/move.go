package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const moveWithin = 3 * time.Second // of one attempt

var (
	errHeard = errors.New("the other side is heard again")
	errGone  = errors.New("the other side does not know the connection")
)

// move goes on over a new socket, which has this host's address of now, once the listener is heard there.
func (c *Conn) move(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	s, remote, err := connected(ctx, c.address, c.buffers)
	if err != nil {
		return
	}
	if err = c.explore(ctx, s); refused(err) {
		c.moving.lost.Store(true)
	}
	if err != nil || !c.adopt(s, remote) {
		s.Close()
	}
}

// explore has the listener check the path of a socket, until one of its own messages comes there: by then datagrams
// pass in both directions.
func (c *Conn) explore(ctx context.Context, s *socket) error {
	challenge := newChallenge()
	send := func(m RoutingMessage) ([]byte, error) {
		d, err := c.moving.seal(m) // anew each time: no record is taken twice
		if err == nil {
			c.left(len(d), 1)
		}
		return d, err
	}
	return s.ask(ctx, func() ([]byte, error) {
		if c.moving.idle() < goneAfter {
			return nil, errHeard
		}
		return send(challenge)
	}, func(d []byte) (bool, error) {
		if m, ok := parseMessage(d); ok {
			if c.isGone(&m) {
				return false, errGone
			}
			return false, nil
		}
		m, ok := c.moving.open(d)
		if ok && m[0] == pathChallenge {
			answer, err := send(m.answer())
			if err == nil {
				_, err = s.Write(answer)
			}
			return true, err
		}
		return ok, nil
	})
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
