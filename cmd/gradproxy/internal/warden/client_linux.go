//go:build amd64 || arm64

package warden

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// How long the warden may take for an answer: sockets are a matter of microseconds, a refresh of the rules of
// milliseconds, and many networks of seconds.
const (
	socketWithin  = 2 * time.Second
	refreshWithin = 5 * time.Second
	updateWithin  = time.Minute
)

// A Client asks a warden. Its methods are safe for concurrent use.
type Client struct {
	process *apart.Process
	rules   line
	sockets line
	duty    Duty
	now     func() time.Time

	mu      sync.Mutex // guards the fields below
	closing bool
	ended   error     // why the warden answers no more; nil: it does
	since   time.Time // when its end was seen: a warden that has ended cannot have renewed the rules later
}

// A line is this end of a socket pair. One request is asked at a time.
type line struct {
	conn  *net.UnixConn
	dials bool // wait for the answers

	mu     sync.Mutex // held while a request waits
	number uint32     // of the last one
	late   bool       // its answer has not come in time, and has still to come. Only where dials wait
	answer [4 + maxWords + 1]byte
}

// Available says that this system has wardens.
const Available = true

// Start starts a warden with the rights that this process has now, and gives it its duty. If the warden ends before
// Close, lost is called once with the reason.
func Start(d Duty, log *slog.Logger, lost func(error)) (*Client, error) {
	process, err := apart.Start(apart.Part{Name: programName, Pairs: pairs, Memory: Memory, Says: "the process that keeps rights says"}, log)
	if err != nil {
		return nil, fmt.Errorf("warden: %w", err)
	}
	c := &Client{process: process, duty: d, now: time.Now, rules: line{conn: process.Conns[rulesPair]}, sockets: line{conn: process.Conns[socketsPair], dials: true}}
	process.Watch(func(err error) { c.await(err, lost) })
	if err := c.begin(d); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Client) begin(d Duty) error {
	if d.Plan != nil && len(d.Plan.Networks)+len(d.Plan.Tunnels) > maxPlaces {
		return errMany
	}
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	return c.ask(&c.rules, opBegin, body, -1, updateWithin)
}

// await notes the end of the warden, and calls lost unless Close has been called.
func (c *Client) await(err error, lost func(error)) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		lost(c.giveUp(fmt.Errorf("the process that keeps rights has ended: %w", err)))
	}
}

// giveUp notes why the warden answers no more, and returns the first reason.
func (c *Client) giveUp(reason error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended, c.since = reason, c.now()
		c.process.Close()
	}
	return c.ended
}

// Pid returns the number of the warden's process.
func (c *Client) Pid() int { return c.process.Pid() }

// Refresh implements intercept.Enforcer.
func (c *Client) Refresh() error { return c.ask(&c.rules, opRefresh, nil, -1, refreshWithin) }

// Update implements intercept.Enforcer.
func (c *Client) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	body, err := encodeUpdate(networks, tunnels)
	if err != nil {
		return err
	}
	return c.ask(&c.rules, opUpdate, body, -1, updateWithin)
}

// Expire implements intercept.Enforcer.
func (c *Client) Expire() error { return c.ask(&c.rules, opExpire, nil, -1, refreshWithin) }

// Remove implements intercept.Enforcer.
func (c *Client) Remove() error {
	if err := c.ask(&c.rules, opRemove, nil, -1, refreshWithin); err != nil {
		return fmt.Errorf("the rules stay until the next start (nft delete table inet %s removes them): %w", c.duty.Plan.Table, err)
	}
	return nil
}

// Mark marks a TCP socket as the proxy's own. It is for net.Dialer.Control. After the end of the warden sockets get no
// mark: Mark then returns an error as long as the rules may be in force, since they could redirect the connection to
// the proxy itself, and returns nil later.
func (c *Client) Mark(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil // the rules are for TCP
	}
	err := c.dress(opMark, conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil && c.now().After(c.since.Add(intercept.Timeout)) {
		return nil
	}
	return err
}

// MarkClient marks a socket and lets it have another host's address. It is for net.Dialer.Control.
func (c *Client) MarkClient(_, _ string, conn syscall.RawConn) error { return c.dress(opClient, conn) }

func (c *Client) dress(o op, conn syscall.RawConn) (err error) {
	if closed := conn.Control(func(fd uintptr) { err = c.ask(&c.sockets, o, nil, int(fd), socketWithin) }); closed != nil {
		return closed
	}
	return err
}

// Congestion gives a TCP socket the congestion control of the duty. If the duty has none it returns EPERM, as the
// kernel does to this process.
func (c *Client) Congestion(fd int) error {
	if c.duty.Congestion == "" {
		return syscall.EPERM
	}
	return c.ask(&c.sockets, opCongestion, nil, fd, socketWithin)
}

// Buffers gives a UDP socket buffers as large as carriers want them.
func (c *Client) Buffers(fd int) error { return c.ask(&c.sockets, opBuffers, nil, fd, socketWithin) }

// errLate is the error of a request without an answer in time, which may still be carried out, and of the requests
// about sockets after it until the late answer has come.
var errLate = errors.New("the process that keeps rights does not answer in time")

// ask asks the warden for something, with the descriptor of a socket unless fd is -1.
func (c *Client) ask(l *line, o op, body []byte, fd int, within time.Duration) error {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		return ended
	}
	words, err := l.ask(o, body, fd, within)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errLate
	case err != nil:
		return c.giveUp(fmt.Errorf("the process that keeps rights does not answer: %w", err))
	case words != "":
		return errors.New(words)
	}
	return nil
}

// ask returns the words of the answer. Dials do not wait one after another for a warden that is stopped: while an
// answer is late nothing is asked, so that the socket pair holds one of their sockets at most. Requests about rules, of
// one goroutine or two, are sent all the same; answers that come too late are skipped.
func (l *line) ask(o op, body []byte, fd int, within time.Duration) (words string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late && !l.await(0) {
		return "", os.ErrDeadlineExceeded
	}
	if err := l.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if l.late {
		if _, err := l.conn.Read(l.answer[:]); err != nil {
			return "", err
		}
		l.late = false
	}
	l.number++
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if _, _, err := l.conn.WriteMsgUnix(append(head(l.number, o), body...), rights, nil); err != nil {
		return "", err
	}
	for {
		if l.dials {
			l.await(within)
		}
		n, err := l.conn.Read(l.answer[:])
		l.late = l.dials && errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err != nil:
			return "", err
		case n < 4 || n == len(l.answer):
			return "", errForm
		case binary.BigEndian.Uint32(l.answer[:]) == l.number: // others came too late
			return string(l.answer[4:n]), nil
		}
	}
}

// await waits in the kernel until a datagram has come or the warden has ended, for at most within, and reports whether
// one has or it has. A thread that waits there is awake sooner than a goroutine that waits for Go's poller: an answer
// takes less than half of the time. Close waits for it.
func (l *line) await(within time.Duration) (come bool) {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return true // a read has the error
	}
	err = raw.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds())) // if a signal ends it, a read waits for the rest
		come = n > 0
	})
	return come || err != nil
}

// errClosed is the reason of Close.
var errClosed = errors.New("warden: closed")

// Close ends the warden and waits for its end. The rules stay as they are.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	_ = c.giveUp(errClosed)
	c.process.Await()
	return nil
}
