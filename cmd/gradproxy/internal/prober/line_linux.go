//go:build amd64 || arm64

package prober

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
)

// A line is a socket pair's end at the proxy. One question is asked at a time, and each has one answer. When an answer
// is late, no other question is asked until it has come and has been dropped, so that it is never taken for the answer
// to another question.
type line struct {
	conn     *net.UnixConn
	log      *slog.Logger
	within   time.Duration // how long an answer may take
	rest     time.Duration // how long no question is asked after a late answer
	grace    time.Duration // how long after the rest a late answer still counts as the last one, if nobody asks
	cost     string        // the price of a late answer, in the words of the log
	timeouts atomic.Uint64

	mu     sync.Mutex // held while a question waits
	answer [maxAnswer + 1]byte

	state struct {
		sync.Mutex           // guards the fields below
		asked      time.Time // the question whose answer is late; zero: none is
		since      time.Time // the first of the late questions in a row; zero: the last answer came in time
		resume     time.Time // when questions are asked again
		broken     error     // why there are no more answers
	}
}

// ask sends a datagram with a connection's descriptor, unless that is nil, and returns a copy of the answer. ErrLate:
// the answer has not come in time, or nothing was asked because an earlier answer is still late.
func (l *line) ask(datagram []byte, own syscall.Conn) (answer []byte, err error) {
	return l.exchange(datagram, own, func([]byte) error { return nil })
}

// askForRecent is ask, and maps the newest calls whose memory's descriptor comes with the answer; nil: none has come.
func (l *line) askForRecent(datagram []byte) (answer []byte, recent *probe.Recent, err error) {
	answer, err = l.exchange(datagram, nil, func(control []byte) (err error) {
		recent, err = l.recentIn(control)
		return err
	})
	return answer, recent, err
}

// recentIn maps the memory whose descriptor is in a control message, and closes that. A system that forbids to map it
// leaves the questions.
func (l *line) recentIn(control []byte) (recent *probe.Recent, err error) {
	err = apart.Descriptors(control, func(fds []int) error {
		for _, fd := range fds {
			r, err := probe.MapRecent(fd)
			if err != nil {
				l.log.Warn("each call of a collective costs a question to the process that probes: let gradproxy map the memory of eBPF maps (SELinux, seccomp, limits of memory)", "err", err)
				continue
			}
			recent = r
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return recent, nil
}

// exchange sends a datagram, with a connection's descriptor unless that is nil, calls take with the control message of
// the answer, and returns a copy of the answer.
func (l *line) exchange(datagram []byte, own syscall.Conn, take func(control []byte) error) (answer []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		if errors.Is(err, ErrLate) && own != nil && Closed(own) {
			err = net.ErrClosed
		}
		return nil, err
	}
	asked := time.Now()
	if err := l.conn.SetDeadline(asked.Add(l.within)); err != nil {
		return nil, err
	}
	if err := l.send(datagram, own); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // nothing was sent
			l.timeouts.Add(1)
			return nil, ErrLate
		}
		return nil, err
	}
	control := make([]byte, apart.ControlLen())
	n, c, _, _, err := l.conn.ReadMsgUnix(l.answer[:], control)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, l.late(asked)
	case err == nil && n > maxAnswer:
		err = errForm
	case err == nil:
		err = take(control[:c])
	}
	if err != nil {
		return nil, l.end(err)
	}
	l.inTime()
	return append([]byte(nil), l.answer[:n]...), nil
}

// ready returns nil if a question may be asked.
func (l *line) ready() error {
	l.state.Lock()
	defer l.state.Unlock()
	switch {
	case l.state.broken != nil:
		return l.state.broken
	case !l.state.asked.IsZero() || time.Now().Before(l.state.resume):
		return ErrLate
	}
	return nil
}

// late notes that the answer to a question has not come in time, and has it dropped when it comes. The first of the
// late questions in a row is logged.
func (l *line) late(asked time.Time) error {
	l.timeouts.Add(1)
	l.state.Lock()
	first := l.answers(asked)
	if first {
		l.state.since = asked
	}
	l.state.asked = asked
	l.state.Unlock()
	if first {
		l.log.Warn("the process that probes does not answer in time: until it does, "+l.cost, "waited", l.within)
	}
	go l.drop()
	return ErrLate
}

// answers reports whether the last answer came in time, or the late one does not count any more. l.state is held.
func (l *line) answers(now time.Time) bool {
	return l.state.since.IsZero() || l.state.asked.IsZero() && now.After(l.state.resume.Add(l.grace))
}

// inTime notes that an answer came in time.
func (l *line) inTime() {
	l.state.Lock()
	since := l.state.since
	l.state.since = time.Time{}
	l.state.Unlock()
	if !since.IsZero() {
		l.log.Info("the process that probes answers in time again", "after", time.Since(since))
	}
}

// drop waits for the late answer, for as long as the socket is open.
func (l *line) drop() {
	err := l.conn.SetDeadline(time.Time{})
	if err == nil {
		_, err = l.conn.Read(l.answer[:]) // nobody else uses it before state.asked is zero
	}
	if err != nil {
		l.end(err)
		return
	}
	l.state.Lock()
	defer l.state.Unlock()
	l.state.asked, l.state.resume = time.Time{}, time.Now().Add(l.rest)
}

// end notes why there are no more answers, and returns the first reason.
func (l *line) end(err error) error {
	l.state.Lock()
	defer l.state.Unlock()
	l.state.asked, l.state.since = time.Time{}, time.Time{}
	if l.state.broken == nil {
		l.state.broken = err
	}
	return l.state.broken
}

// lateFor returns the time since the first of the late questions in a row was asked; 0: the line answers.
func (l *line) lateFor() time.Duration {
	l.state.Lock()
	defer l.state.Unlock()
	now := time.Now()
	if l.answers(now) {
		return 0
	}
	return now.Sub(l.state.since)
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
