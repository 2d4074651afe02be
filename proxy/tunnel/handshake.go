package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// The handshake of a carrier: Transport.Secure, in which both sides prove their identities, then
//
//	dialer   → HELLO
//	acceptor → HELLO, READY with the dialer's incarnation
//	dialer   → READY with the acceptor's incarnation
//
// after which it is attached to the session of this pair of incarnations. An acceptor that has a session with
// an older incarnation of the dialer gives it up only at READY, when the dialer has shown that it lives.

// call makes a carrier of a connection that this side has dialed, and attaches it to s.
func (p *peer) call(ctx context.Context, raw net.Conn, s *session, at place) error {
	defer boundHandshake(ctx, raw)()
	c, err := p.home.secure(ctx, raw, true, func(id string) error {
		if id != p.id && strings.HasSuffix(id, "/"+p.home.cfg.Name) {
			return fmt.Errorf("it is %s, this site itself, not %s: correct the address at which the peer is dialed", id, p.id)
		}
		if id != p.id {
			return fmt.Errorf("it is %s, not %s", id, p.id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	mine := p.home.hello(s)
	mine.yours = s.known()
	mine.place = at
	theirs, err := func() (*hello, error) {
		if err := c.writeRecord(kindHello, mine.append(nil)); err != nil {
			return nil, err
		}
		h, err := c.readHello(mine)
		if err != nil {
			return nil, err
		}
		return h, c.readReady(s.mine)
	}()
	if err != nil {
		return err
	}
	if known := s.known(); known != (incarnation{}) && known != theirs.mine {
		if err := p.rival(ctx, theirs.mine, raw.RemoteAddr()); err != nil {
			return c.refuse(err)
		}
		p.fail(s, errors.New("the peer has lost it"), "")
		return errAgain
	}
	c.place, c.dialed = at, true
	return p.settle(c, s, theirs, func() error { return c.writeRecord(kindReady, theirs.mine[:]) })
}

// answer makes a carrier of a connection that this side has accepted.
func (e *Endpoint) answer(ctx context.Context, raw net.Conn) (*peer, error) {
	defer boundHandshake(ctx, raw)()
	var p *peer
	c, err := e.secure(ctx, raw, false, func(id string) error {
		if p = e.peerByID(id); p == nil {
			return fmt.Errorf("no peer %s is configured", id)
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	mine := e.hello(nil)
	theirs, err := c.readHello(mine)
	if err != nil {
		return p, err
	}
	if p == nil { // in clear
		if p = e.peerByName(theirs.name); p == nil {
			return nil, c.refuse(fmt.Errorf("no peer %q is configured", theirs.name))
		}
	}
	if err := p.rival(ctx, theirs.mine, raw.RemoteAddr()); err != nil {
		return p, c.refuse(err)
	}
	s := p.candidate(theirs.mine)
	mine.mine, mine.yours = s.mine, theirs.mine
	if err := c.writeRecord(kindHello, mine.append(nil)); err != nil {
		return p, err
	}
	if err := c.writeRecord(kindReady, theirs.mine[:]); err != nil {
		return p, err
	}
	if err := c.readReady(s.mine); err != nil {
		return p, err
	}
	c.place = theirs.place
	return p, p.settle(c, s, theirs, func() error { return nil })
}

// boundHandshake ends the handshake on conn when ctx does, and each wait for the other end after handshakeWithin. The
// caller calls stop when the handshake is over.
func boundHandshake(ctx context.Context, conn net.Conn) (stop func() bool) {
	conn.SetDeadline(time.Now().Add(handshakeWithin))
	return context.AfterFunc(ctx, func() { conn.Close() })
}

// secure has the transport prove which site is at the other end of conn; allow judges the identity that is proved.
func (h *home) secure(ctx context.Context, conn net.Conn, dialed bool, allow func(id string) error) (*carrier, error) {
	c := &carrier{born: time.Now(), datagrams: h.transport.Datagrams(conn), kind: h.transport.Kind(conn)}
	proved := false
	link, err := h.transport.Secure(ctx, conn, dialed, func(id string) error {
		err := allow(id)
		proved = err == nil
		return err
	})
	if err != nil {
		return nil, err
	}
	if !proved && !h.cfg.Insecure {
		return nil, errNoIdentity
	}
	c.link = link
	return c, nil
}

// hello returns the HELLO of this side.
func (h *home) hello(s *session) *hello {
	mine := &hello{
		min: minVersion, max: maxVersion,
		name:    h.cfg.Name,
		maxBody: maxBody,
		streams: h.cfg.Streams,
		window:  h.window,
		codecs:  h.cfg.Codecs,
		pads:    true,
		short:   true,
	}
	if s != nil {
		mine.mine = s.mine
	}
	return mine
}

// settle attaches the carrier after ready has said that it is.
func (p *peer) settle(c *carrier, s *session, theirs *hello, ready func() error) error {
	if err := p.confirm(s, theirs); err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	if err := ready(); err != nil {
		return err
	}
	c.first = bytes.Compare(s.mine[:], theirs.mine[:]) < 0
	c.link.SetDeadline(time.Time{})
	if !s.attach(c) {
		return errAgain
	}
	p.home.running.Go(func() { s.write(c) })
	p.home.running.Go(func() { p.read(s, c) })
	return nil
}

// writeRecord sends one record.
func (c *carrier) writeRecord(k kind, body []byte) error {
	if _, err := c.link.Write(append(header{kind: k, length: len(body)}.append(nil), body...)); err != nil {
		return err
	}
	return c.link.Flush()
}

// refuse tells the peer why it is not heard out, and returns err.
func (c *carrier) refuse(err error) error {
	text := err.Error()
	c.writeRecord(kindEnd, []byte(text[:min(len(text), maxText)])) // the peer may be gone: err says enough
	c.link.CloseWrite()
	return err
}

// readHello reads a HELLO and checks that the two sides have a version in common.
func (c *carrier) readHello(mine *hello) (*hello, error) {
	body, err := c.readRecord(kindHello)
	if err != nil {
		return nil, err
	}
	h, err := parseHello(body)
	if err == nil {
		_, err = agree(mine, h)
	}
	if err != nil {
		return nil, c.refuse(err)
	}
	return h, nil
}

// readReady reads a READY.
func (c *carrier) readReady(mine incarnation) error {
	body, err := c.readRecord(kindReady)
	if err != nil {
		return err
	}
	if incarnation(body) != mine {
		return errAgain
	}
	return nil
}

// readRecord reads a record of that kind.
func (c *carrier) readRecord(k kind) ([]byte, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(c.link, head[:]); err != nil {
		return nil, fmt.Errorf("waiting for %v from %v: %w", k, c.link.RemoteAddr(), err)
	}
	h, err := parseHeader(&head, 0)
	if err != nil {
		return nil, err
	}
	if h.kind != k && h.kind != kindEnd {
		return nil, fmt.Errorf("%v record where %v is due", h.kind, k)
	}
	body := make([]byte, h.length)
	if _, err := io.ReadFull(c.link, body); err != nil {
		return nil, fmt.Errorf("waiting for %v from %v: %w", k, c.link.RemoteAddr(), err)
	}
	if h.kind == kindEnd {
		return nil, fmt.Errorf("refused by the peer: %q", body)
	}
	return body, nil
}
