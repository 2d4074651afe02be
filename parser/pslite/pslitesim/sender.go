package pslitesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// A sender is the connection to a node on which messages go to it: libzmq's DEALER. One that is lost is dialled again.
type sender struct {
	node     *life
	to       int32
	addr     string
	identity string

	dialling context.Context // done when the node has failed or close was called
	stop     context.CancelFunc
	wake     chan struct{} // receives when there may be something new to do
	done     chan struct{} // closed when run has returned

	mu      sync.Mutex
	queue   [][][]byte    // messages
	conn    *zmtp.Conn    // nil while there is none
	up      chan struct{} // closed while there is one
	closing bool
	renewed bool // the connection was closed here, to be dialled anew at once
}

// send queues a message. After close it is dropped.
func (s *sender) send(message [][]byte) {
	s.mu.Lock()
	if !s.closing {
		s.queue = append(s.queue, message)
	}
	s.mu.Unlock()
	s.rouse()
}

// close ends the connection when all messages are sent, or at once if there is none. It does not wait for that.
func (s *sender) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.stop()
	s.rouse()
}

// renew closes the connection, on which nothing is under way, and waits until it is there again.
func (s *sender) renew(ctx context.Context) error {
	s.mu.Lock()
	if s.conn != nil {
		s.renewed, s.up = true, make(chan struct{})
		s.conn.Close()
		s.conn = nil
	}
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-s.node.Done():
		return s.node.Err()
	case <-ctx.Done():
		return fmt.Errorf("pslitesim: connect to %s again: %w", name(s.to), context.Cause(ctx))
	}
}

func (s *sender) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run keeps the node connected and writes the queued messages.
func (s *sender) run() {
	defer close(s.done)
	defer s.stop()
	lost := false
	for {
		conn, err := s.dial(lost)
		if err != nil {
			if !s.isClosing() {
				s.node.fail(err)
			}
			return
		}
		err = s.serve(conn)
		conn.Close()
		switch {
		case err == nil: // closing
			return
		case s.wasRenewed():
			lost = false
			s.node.Log.Debug("connection renewed", "to", name(s.to))
		case s.node.isLeaving():
			return
		case !errors.Is(err, errLost):
			s.node.fail(fmt.Errorf("pslitesim: %s: %w", name(s.to), err))
			return
		default:
			lost = true
		}
	}
}

// wasRenewed reports whether the connection has ended because renew closed it, and notes that there is none.
func (s *sender) wasRenewed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.renewed
	s.renewed, s.conn = false, nil
	if !was {
		s.up = make(chan struct{})
	}
	return was
}

func (s *sender) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// dial connects, and tries again until it succeeds, the node ends or, after a loss, its patience does.
func (s *sender) dial(lost bool) (*zmtp.Conn, error) {
	since := time.Now()
	for wait := lost; ; wait = true {
		if wait {
			select {
			case <-time.After(redial):
			case <-s.dialling.Done():
				return nil, context.Cause(s.dialling)
			}
		}
		conn, err := s.try()
		if err == nil && lost && s.node.awaits(s.to) {
			conn.Close()
			return nil, fmt.Errorf("pslitesim: %s: connection was lost while an answer is due", name(s.to))
		}
		if err == nil {
			s.mu.Lock()
			s.conn = conn
			close(s.up)
			s.mu.Unlock()
			return conn, nil
		}
		s.node.Log.Debug("cannot connect", "to", name(s.to), "addr", s.addr, "err", err)
		if lost && time.Since(since) >= s.node.Patience {
			return nil, fmt.Errorf("pslitesim: %s: lost: %w", name(s.to), err)
		}
	}
}

// try dials once.
func (s *sender) try() (*zmtp.Conn, error) {
	ctx, cancel := context.WithTimeout(s.dialling, greeting)
	defer cancel()
	raw, err := s.node.Dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	return zmtp.Handshake(ctx, raw, s.node.socket(zmtp.Dealer, s.identity), s.node.Traffic)
}

// isReset reports whether a connection has ended between messages by a reset: with unread bytes in a peer that closes,
// or because it was closed here.
func isReset(err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// errLost is wrapped when a connection has ended. Messages under way on it are lost. A node that waits for an answer
// notices: the connection of the answer ends as well, or this one is there again and the answer still due.
var errLost = errors.New("connection lost")

// serve writes queued messages until the connection is lost or, with a nil error, to be closed and all written.
func (s *sender) serve(conn *zmtp.Conn) error {
	stop := context.AfterFunc(s.node.ctx, func() { conn.Close() })
	defer stop()
	ended := make(chan error, 1)
	s.node.running.Go(func() {
		_, err := conn.ReadMessage()
		if err == nil {
			err = errors.New("message from the node that is to receive")
		}
		ended <- err
	})
	for {
		s.mu.Lock()
		batch, closing := s.queue, s.closing
		s.queue = nil
		s.mu.Unlock()
		if len(batch) > 0 {
			if err := conn.WriteMessages(batch); err != nil {
				return fmt.Errorf("%w: %w", errLost, err)
			}
			continue
		}
		if closing {
			return nil
		}
		select {
		case <-s.wake:
		case err := <-ended:
			if err == io.EOF || isReset(err) {
				err = fmt.Errorf("%w: %w", errLost, err)
			}
			return err
		}
	}
}
