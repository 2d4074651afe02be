package pslitesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// accept accepts connections until the node ends.
func (n *Node) accept() {
	for {
		raw, err := n.Listener.Accept()
		if err != nil {
			if !n.isLeaving() {
				n.fail(fmt.Errorf("pslitesim: accept: %w", err))
			}
			return
		}
		n.running.Go(func() { n.receive(raw) })
	}
}

// receive greets and reads one connection. A peer that does not speak ZMTP is turned away, as by libzmq.
func (n *Node) receive(raw net.Conn) {
	ctx, cancel := context.WithTimeout(n.ctx, greeting)
	conn, err := zmtp.Handshake(ctx, raw, n.socket(zmtp.Router, ""), n.Traffic)
	cancel()
	if err != nil {
		n.Log.Debug("connection refused", "from", raw.RemoteAddr(), "err", err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(n.ctx, func() { conn.Close() })()
	from, err := parseIdentity(conn.Peer.Identity)
	if err == nil && from != 0 {
		var in *inbound
		if in, err = n.admit(from, conn); err == nil {
			defer n.dismiss(from, in)
		}
	}
	if err == nil {
		err = n.read(from, conn)
	}
	if err != nil && !n.isLeaving() {
		n.fail(fmt.Errorf("pslitesim: %s: %w", name(from), err))
	}
}

// admit makes conn the one connection from a node. An earlier one of the same identity must end first: libzmq's ROUTER
// would ignore this one, but since both ends may pass through relays, the end of the old one may come after the new
// one.
func (n *Node) admit(from int32, conn *zmtp.Conn) (*inbound, error) {
	in := &inbound{conn, make(chan struct{})}
	patience := time.NewTimer(n.Patience)
	defer patience.Stop()
	for {
		n.mu.Lock()
		old := n.inbound[from]
		if old == nil {
			n.inbound[from] = in
			close(n.admitted)
			n.admitted = make(chan struct{})
			n.mu.Unlock()
			return in, nil
		}
		n.mu.Unlock()
		select {
		case <-old.gone:
		case <-patience.C:
			return nil, errors.New("a second connection with the identity of one that has not ended")
		case <-n.ctx.Done():
			return nil, context.Cause(n.ctx)
		}
	}
}

// dismiss forgets a connection that has ended.
func (n *Node) dismiss(from int32, in *inbound) {
	n.mu.Lock()
	if n.inbound[from] == in {
		delete(n.inbound, from)
	}
	n.mu.Unlock()
	close(in.gone)
}

// read handles a connection's messages to its end. It is an error if it ends within one, or while an answer is due.
func (n *Node) read(from int32, conn *zmtp.Conn) error {
	for {
		frames, err := conn.ReadMessage()
		if err == io.EOF || isReset(err) {
			if n.awaits(from) {
				return errors.New("connection has ended while an answer is due")
			}
			return nil
		}
		if err != nil {
			return err
		}
		m := &Message{From: from, Data: frames[1:]}
		if m.Meta, err = ParseMeta(frames[0]); err != nil {
			return err
		}
		if len(m.DataTypes) != len(m.Data) {
			return fmt.Errorf("message of %d data frames with types for %d", len(m.Data), len(m.DataTypes))
		}
		switch {
		case m.Control != nil:
			err = n.control(m)
		case n.app == nil || from == 0:
			err = errors.New("data message that is not for this node")
		default:
			err = n.app.Receive(n, m)
		}
		if err != nil {
			return err
		}
	}
}
