package prober

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/bpf/probe"
)

// A Client asks a prober. Its methods are safe for concurrent use.
type Client struct {
	quick, slow *line
	recent      atomic.Pointer[probe.Recent] // nil: all is asked
	pid         int
	kill        func() // ends the prober, which may be stopped and see nothing else
	died        func() // waits for the prober's end

	mu        sync.Mutex // guards the fields below
	closing   bool
	processes map[uint32]*Process
	ended     error // why the prober answers no more; nil: it does
}

// A Process is a process whose collectives the prober sees. Its methods are safe for concurrent use.
type Process struct {
	client *Client
	sight
	proved   atomic.Bool
	ended    atomic.Pointer[string]
	timeouts atomic.Uint64 // of the line before the newest answer about the process's calls
}

// Pid returns the number of the prober's process.
func (c *Client) Pid() int { return c.pid }

// ErrLate is the error of a question that is not answered in time, and of later questions until the late answer has
// come. It does not end a proof.
var ErrLate = errors.New("prober: the process that probes has not answered in time")

// Late returns the time since the prober's first late answer in a row, or 0 if the prober answers in time. The pause
// after a late answer counts too.
func (c *Client) Late() time.Duration { return max(c.quick.lateFor(), c.slow.lateFor()) }

// Timeouts returns the number of questions that were not answered in time. Questions that were not asked, since an
// earlier answer was late, do not count.
func (c *Client) Timeouts() uint64 { return c.quick.timeouts.Load() + c.slow.timeouts.Load() }

// Load asks the prober to load the programs, unless it has done so already.
func (c *Client) Load() error {
	_, err := c.answerBy(func() ([]byte, error) {
		answer, recent, err := c.slow.askForRecent((&request{op: opLoad}).encode())
		if recent != nil {
			c.recent.Store(recent)
		}
		return answer, err
	}, nil)
	return err
}

// Find returns the process of this host at the other end of conn, and asks the prober to note the process's
// collectives. The process sees the connection as one to far or to conn's own address. An error says in one line why
// the collectives cannot be seen. pid is the number of the process, or 0 if it was not found.
func (c *Client) Find(conn syscall.Conn, far netip.AddrPort) (process *Process, pid int, err error) {
	err = probe.Patiently(func() (err error) {
		process, pid, err = c.look(conn, far)
		return err
	})
	return process, pid, err
}

func (c *Client) look(conn syscall.Conn, far netip.AddrPort) (*Process, int, error) {
	body, err := c.ask(c.slow, &request{op: opLook, far: far}, conn)
	if err != nil {
		pid := 0
		if r := (*refusal)(nil); errors.As(err, &r) {
			pid = r.pid
		}
		return nil, pid, err
	}
	x, err := decodeSight(body)
	if err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, 0, c.ended
	}
	process := c.processes[x.process]
	if process == nil {
		for _, other := range c.processes {
			if other.pid == x.pid { // the prober has found another process with its number, or another program of it
				other.End("the process has ended")
			}
		}
		process = &Process{client: c, sight: x}
		c.processes[x.process] = process
	}
	return process, x.pid, nil
}

// Living forgets the processes that have ended, and returns the others. While an answer is late it forgets none.
func (c *Client) Living() []*Process {
	c.mu.Lock()
	ended := maps.Clone(c.processes) // the answer's processes are taken out. A process that is found in the meantime may not be in it
	c.mu.Unlock()
	body, err := c.ask(c.slow, &request{op: opLiving}, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, ErrLate) {
		return slices.Collect(maps.Values(c.processes))
	}
	var living []*Process
	for ; err == nil && len(body) >= 4; body = body[4:] {
		id := binary.BigEndian.Uint32(body)
		if process := c.processes[id]; process != nil {
			delete(ended, id)
			living = append(living, process)
		}
	}
	for id, process := range ended {
		process.End("the process has ended")
		delete(c.processes, id)
	}
	return living
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.pid }

// Name returns the name of the process's program.
func (p *Process) Name() string { return p.name }

// Identity returns a number that no other process, nor this one when it is found again, ever has. It names the process
// and the buckets that it has had since it was found.
func (p *Process) Identity() uint64 { return p.identity }

// Calls appends to dst the calls that have a tag: for each process group that may have given the tag, one call in each
// layout. Once the proof has ended it appends nothing. If the prober's answer is late it appends nothing and answered
// is false. For the newest calls Calls reads memory and asks no question. It does not do so while an answer is late,
// nor until the next answer about this process: the late answer was dropped, and may have said that the proof has
// ended.
func (p *Process) Calls(dst []probe.Call, tag uint32) (calls []probe.Call, answered bool) {
	if p.ended.Load() != nil {
		return dst, true
	}
	timeouts := p.client.quick.timeouts.Load()
	if recent := p.client.recent.Load(); recent != nil && p.client.quick.ready() == nil && p.timeouts.Load() == timeouts {
		if calls, known := recent.Calls(dst, p.place, tag); known {
			return calls, true
		}
	}
	body, err := p.client.ask(p.client.quick, &request{op: opCalls, process: p.process, tag: tag}, nil)
	if errors.Is(err, ErrLate) {
		return dst, false
	}
	if err == nil {
		calls, err = decodeCalls(dst, body)
	}
	if err != nil {
		p.End(err.Error())
		return dst, true
	}
	p.timeouts.Store(timeouts)
	return calls, true
}

// Counts returns the counts of the process's calls.
func (p *Process) Counts() (probe.Counts, error) {
	body, err := p.client.ask(p.client.quick, &request{op: opCounts, process: p.process}, nil)
	if err != nil {
		return probe.Counts{}, err
	}
	return decodeCounts(body)
}

// Prove notes that messages of the process have agreed with its calls, which prove gradients.
func (p *Process) Prove() { p.proved.Store(true) }

// Proved reports whether Prove was called.
func (p *Process) Proved() bool { return p.proved.Load() }

// End ends the proof for as long as the process lives. It reports whether the proof had not ended before.
func (p *Process) End(reason string) bool { return p.ended.CompareAndSwap(nil, &reason) }

// Ended returns the reason for which the proof has ended, or "" if it has not.
func (p *Process) Ended() string {
	if reason := p.ended.Load(); reason != nil {
		return *reason
	}
	return ""
}

// Closed reports whether a connection is closed at this end.
func Closed(conn syscall.Conn) bool {
	raw, err := conn.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// ask asks the prober by one of its lines. ErrLate: there was no answer in time. A prober that answers out of form, or
// has ended, is given up.
func (c *Client) ask(l *line, r *request, own syscall.Conn) ([]byte, error) {
	return c.answerBy(func() ([]byte, error) { return l.ask(r.encode(), own) }, own)
}

// answerBy is ask for a question that the function ask puts.
func (c *Client) answerBy(ask func() ([]byte, error), own syscall.Conn) ([]byte, error) {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	answer, err := ask()
	if errors.Is(err, ErrLate) {
		return nil, err
	}
	if errors.Is(err, net.ErrClosed) && own != nil && !c.over() { // the connection has ended
		return nil, &refusal{is: probe.ErrSocket, words: "prober: the connection has ended"}
	}
	if err == nil {
		answer, err = open(answer)
	}
	if r := (*refusal)(nil); err != nil && !errors.As(err, &r) {
		err = c.giveUp(fmt.Errorf("the process that probes does not answer: %w", err))
	}
	return answer, err
}

// over reports whether the prober answers no more.
func (c *Client) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// giveUp ends the prober, and the proof for all processes, and returns the first reason.
func (c *Client) giveUp(reason error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.ended = reason
	for _, p := range c.processes {
		p.End(reason.Error())
	}
	clear(c.processes)
	c.quick.close()
	c.slow.close()
	if !errors.Is(reason, errClosed) {
		c.kill()
	}
	return reason
}

// errClosed is the reason of Close.
var errClosed = errors.New("prober: closed")

// Close ends the prober, which removes the programs, and waits for its end. Questions that wait for an answer fail at
// once.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	_ = c.giveUp(errClosed)
	c.died()
	return nil
}
