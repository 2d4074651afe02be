//go:build amd64 || arm64

package prober

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A line is a socket pair's end at the proxy. One question is asked at a time.
type line struct {
	conn   *net.UnixConn
	within time.Duration // how long an answer may take

	mu     sync.Mutex
	broken error // of the first question without an answer: one that comes late would be taken for the next question's
	answer [maxAnswer + 1]byte
}

// ask sends a datagram with a connection's descriptor, unless that is nil, and returns a copy of the answer.
func (l *line) ask(datagram []byte, own syscall.Conn) (answer []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return nil, l.broken
	}
	if err := l.conn.SetDeadline(time.Now().Add(l.within)); err != nil {
		return nil, err
	}
	if err := l.send(datagram, own); err != nil {
		return nil, err
	}
	n, err := l.conn.Read(l.answer[:])
	if err == nil && n > maxAnswer {
		err = errForm
	}
	if err != nil {
		l.broken = err
		return nil, err
	}
	return append([]byte(nil), l.answer[:n]...), nil
}

func (l *line) send(datagram []byte, own syscall.Conn) error {
	if own == nil {
		_, err := l.conn.Write(datagram)
		return err
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { _, _, sent = l.conn.WriteMsgUnix(datagram, unix.UnixRights(int(fd)), nil) })
	if err != nil && sent == nil { // own is closed
		return fmt.Errorf("%w: %w", net.ErrClosed, err)
	}
	return errors.Join(err, sent)
}

func (l *line) close() { _ = l.conn.Close() }
