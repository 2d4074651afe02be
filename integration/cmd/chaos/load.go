//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// A half is one direction of an exchange: the bytes that an app writes, in pieces and with pauses, before it ends the
// direction.
type half struct {
	all    []byte
	cuts   []int // ends of the pieces
	urgent []bool
	pauses []time.Duration // before each piece
	reset  bool            // the connection is reset where the end would be
}

// headSize is the size of the number with which a client's bytes begin, so that the server knows the exchange.
const headSize = 8

func newHalf(r *rand.Rand, number uint64, limit int, length time.Duration) (h half) {
	h.all = make([]byte, headSize+r.IntN(limit))
	binary.BigEndian.PutUint64(h.all, number)
	for i := headSize; i < len(h.all); i++ {
		if h.all[i] = byte(r.Uint32()); r.IntN(2000) == 0 { // runs that a codec makes smaller
			i += r.IntN(500)
		}
	}
	pieces := 1 + r.IntN(8)
	for at := 0; at < len(h.all); {
		at = min(at+1+r.IntN(2*len(h.all)/pieces+1), len(h.all))
		h.cuts = append(h.cuts, at)
		h.urgent = append(h.urgent, r.IntN(4) == 0)
		h.pauses = append(h.pauses, time.Duration(r.Int64N(int64(length)))/time.Duration(pieces))
	}
	h.reset = r.IntN(10) == 0
	return h
}

type interval struct{ from, to time.Time }

// An exchange is one connection of the job, and the bytes and ends that both of its apps have seen.
type exchange struct {
	halves [2]half // of the client, of the server
	begun  time.Time

	mu    sync.Mutex
	sides [2]side
	reset bool // by an app of its own
}

type side struct {
	begun bool
	got   []byte
	end   error // of reading; io.EOF: a FIN
	ended bool  // all was written, and then a FIN
	over  time.Time
}

var errReset = errors.New("connection reset, as a write has seen")

// run plays the app of side i until its connection c has ended. read has the bytes that were already read from c.
func (e *exchange) run(i int, c *net.TCPConn, read []byte) {
	e.mu.Lock()
	e.sides[i].begun = true
	e.mu.Unlock()
	mine := &e.halves[i]
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		at := 0
		for k, to := range mine.cuts {
			time.Sleep(mine.pauses[k])
			if write(c, mine.all[at:to], mine.urgent[k]) != nil {
				return
			}
			at = to
		}
		e.mu.Lock()
		e.reset = e.reset || mine.reset
		e.sides[i].ended = !mine.reset
		e.mu.Unlock()
		if mine.reset {
			abort(c)
			return
		}
		c.CloseWrite()
	}()
	got := bytes.Clone(read)
	var err error
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		n, err = c.Read(buf)
		got = append(got, buf[:n]...)
	}
	e.mu.Lock()
	if err == io.EOF && !e.sides[i].ended && app.ClosedByReset(c) {
		err = errReset // a write has used up the error
	}
	e.mu.Unlock()
	if err != io.EOF {
		abort(c)
	}
	<-wrote
	c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.sides[i]
	s.got, s.end, s.over = got, err, time.Now()
}

// write writes b to c. If urgent is set it writes the last byte as urgent data, which must arrive in line with the
// other bytes.
func write(c *net.TCPConn, b []byte, urgent bool) error {
	if !urgent {
		_, err := c.Write(b)
		return err
	}
	if _, err := c.Write(b[:len(b)-1]); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		sendErr = syscall.Sendto(int(fd), b[len(b)-1:], syscall.MSG_OOB|syscall.MSG_NOSIGNAL, nil)
		return sendErr != syscall.EAGAIN
	})
	return errors.Join(err, sendErr)
}

// fault names the promise that the connection has broken, or returns "" if it has broken none. In the intervals
// disturbed streams may be reset.
func (e *exchange) fault(disturbed []interval) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	over := e.begun
	for i := range e.sides {
		me, theirs := &e.sides[i], &e.halves[1-i]
		switch {
		case !me.begun && i == 1: // the server has never read the number
		case me.over.IsZero():
			return "a connection has not ended"
		case len(me.got) > len(theirs.all) || sum(me.got) != sum(theirs.all[:len(me.got)]):
			return fmt.Sprintf("the checksum of %d bytes differs", len(me.got))
		case me.end == io.EOF && len(me.got) < len(theirs.all):
			return fmt.Sprintf("a FIN came after %d of %d bytes", len(me.got), len(theirs.all))
		case me.end == io.EOF && !e.sides[1-i].ended:
			return "a FIN came, and the other app has sent none"
		}
		if me.over.After(over) {
			over = me.over
		}
	}
	if e.complete() || e.reset {
		return ""
	}
	for _, t := range disturbed {
		if !t.to.Before(e.begun) && !t.from.After(over) {
			return ""
		}
	}
	return fmt.Sprintf("reset for no reason: %v with %d of %d bytes, %v with %d of %d", e.sides[0].end, len(e.sides[0].got), len(e.halves[1].all),
		e.sides[1].end, len(e.sides[1].got), len(e.halves[0].all))
}

// complete reports whether both apps have read all bytes and a FIN. e.mu must be held.
func (e *exchange) complete() bool {
	for i := range e.sides {
		if e.sides[i].end != io.EOF || len(e.sides[i].got) != len(e.halves[1-i].all) {
			return false
		}
	}
	return true
}

func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// A job runs the apps at both sites.
type job struct {
	entry  string // where clients connect
	server net.Listener

	mu        sync.Mutex
	exchanges map[uint64]*exchange
	order     []*exchange
	finished  int // exchanges that were judged and forgotten
	apps      sync.WaitGroup
}

func newJob(server net.Listener, entry string) *job {
	j := &job{entry: entry, server: server, exchanges: map[uint64]*exchange{}}
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			j.apps.Go(func() { j.serve(c.(*net.TCPConn)) })
		}
	}()
	return j
}

// serve is the server's app of a connection.
func (j *job) serve(c *net.TCPConn) {
	head := make([]byte, headSize)
	if _, err := io.ReadFull(c, head); err != nil {
		abort(c)
		return
	}
	number := binary.BigEndian.Uint64(head)
	j.mu.Lock()
	e := j.exchanges[number]
	delete(j.exchanges, number)
	j.mu.Unlock()
	if e == nil { // the number was changed on the way, or came twice
		abort(c)
		return
	}
	e.run(1, c, head)
}

// client connects to the proxy, which may be dead for now, and runs one exchange.
func (j *job) client(number uint64, halves [2]half) error {
	var last error
	for range 2400 { // two minutes
		c, err := net.Dial("tcp", j.entry)
		if err != nil { // the proxy is dead for now
			last = err
			time.Sleep(50 * time.Millisecond)
			continue
		}
		e := &exchange{halves: halves, begun: time.Now()}
		j.mu.Lock()
		j.exchanges[number] = e
		j.order = append(j.order, e)
		j.mu.Unlock()
		e.run(0, c.(*net.TCPConn), nil)
		return nil
	}
	return fmt.Errorf("no connection to %s: %w", j.entry, last)
}
