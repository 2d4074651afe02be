package gloosim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A pair is the connection to one peer. One goroutine writes the messages of the outbox, another reads; neither ever
// waits for the other, so that two peers that both send much cannot block each other.
type pair struct {
	conn           net.Conn
	sent, received atomic.Int64 // bytes

	mu     sync.Mutex
	filled sync.Cond // outbox is not empty, or err is set
	outbox []message
	slots  map[slotID]*counts
	err    error // why the pair is of no more use
}

// A transfer is a buffer to be sent or filled; done, which has room, is told when that has happened or failed.
type transfer struct {
	b    []byte
	done chan<- error
}

// A message is an op to be written. Its transfer is zero if it has no payload.
type message struct {
	preamble
	transfer
}

// counts is the state of a slot in both directions, first in first out (transport/context.h). Gloo counts the peer's
// notifications only; their lengths are kept here in order to notice a peer, or anyone between, that breaks the rules.
type counts struct {
	sends     []transfer // announced, waiting for the peer's NOTIFY_RECV_READY
	rooms     []uint64   // the peer's NOTIFY_RECV_READYs that no send has used yet
	recvs     []transfer // posted, waiting for a payload
	announced []uint64   // the peer's NOTIFY_SEND_READYs whose payload has not come yet
}

func (c *counts) empty() bool {
	return len(c.sends)+len(c.rooms)+len(c.recvs)+len(c.announced) == 0
}

// newPair takes over a connection that is ready for ops. sent and received are the bytes that have passed on it before.
func newPair(conn net.Conn, sent, received int) *pair {
	p := &pair{conn: conn, slots: make(map[slotID]*counts)}
	p.filled.L = &p.mu
	p.sent.Store(int64(sent))
	p.received.Store(int64(received))
	go p.write()
	go p.read()
	return p
}

// send announces a message, whose payload follows as soon as the peer has room for it (pair.cc, Pair::send).
func (p *pair) send(s slotID, t transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		t.done <- p.err
		return
	}
	p.post(message{preamble: preamble{notifySendReady, s, uint64(len(t.b))}})
	c := p.counts(s)
	if len(c.rooms) == 0 {
		c.sends = append(c.sends, t)
		return
	}
	room := pop(&c.rooms)
	p.forget(s, c)
	p.queue(s, t, room)
}

// recv makes room for a message (pair.cc, Pair::recv).
func (p *pair) recv(s slotID, t transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		t.done <- p.err
		return
	}
	c := p.counts(s)
	c.recvs = append(c.recvs, t)
	p.post(message{preamble: preamble{notifyRecvReady, s, uint64(len(t.b))}})
}

// fail closes the connection and completes every transfer with err, unless the pair has failed already.
func (p *pair) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(err)
}

func (p *pair) failLocked(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	p.conn.Close()
	for _, c := range p.slots {
		for _, t := range append(c.sends, c.recvs...) {
			t.done <- err
		}
	}
	p.slots = nil
	for _, m := range p.outbox {
		if m.done != nil {
			m.done <- err
		}
	}
	p.outbox = nil
	p.filled.Broadcast()
}

// post queues an op. p.mu is held.
func (p *pair) post(m message) {
	p.outbox = append(p.outbox, m)
	p.filled.Signal()
}

// queue appends a payload for which the peer has made room. p.mu is held.
func (p *pair) queue(s slotID, t transfer, room uint64) {
	if room < uint64(len(t.b)) {
		err := fmt.Errorf("gloosim: %v: peer has room for %d bytes where %d are due", s, room, len(t.b))
		t.done <- err
		p.failLocked(err)
		return
	}
	p.post(message{preamble{sendUnboundBuffer, s, uint64(len(t.b))}, t})
}

// counts returns a slot's state. p.mu is held, and p.err is nil.
func (p *pair) counts(s slotID) *counts {
	c := p.slots[s]
	if c == nil {
		c = new(counts)
		p.slots[s] = c
	}
	return c
}

// forget drops a slot's state if nothing is open on it. p.mu is held.
func (p *pair) forget(s slotID, c *counts) {
	if c.empty() {
		delete(p.slots, s)
	}
}

// write writes ops in the order in which they were queued, all that there are in one gathered write.
func (p *pair) write() {
	var batch []message
	var heads []byte
	var pieces net.Buffers
	for {
		p.mu.Lock()
		for len(p.outbox) == 0 && p.err == nil {
			p.filled.Wait()
		}
		if p.err != nil {
			p.mu.Unlock()
			return
		}
		batch, p.outbox = p.outbox, batch[:0]
		p.mu.Unlock()

		heads = heads[:0]
		for _, m := range batch {
			heads = m.appendTo(heads)
		}
		pieces = pieces[:0]
		for i, m := range batch {
			pieces = append(pieces, heads[i*preambleLen:(i+1)*preambleLen])
			if len(m.b) > 0 {
				pieces = append(pieces, m.b)
			}
		}
		out := pieces // WriteTo consumes it
		n, err := out.WriteTo(p.conn)
		p.sent.Add(n)
		if err != nil {
			p.fail(fmt.Errorf("gloosim: write to peer: %w", err))
			err = p.failure()
		}
		for i, m := range batch {
			if m.done != nil {
				m.done <- err
			}
			batch[i] = message{}
		}
	}
}

// failure returns why the pair has failed.
func (p *pair) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// read reads ops until the connection ends.
func (p *pair) read() {
	r := bufio.NewReader(counted{p.conn, &p.received})
	head := make([]byte, preambleLen)
	for {
		_, err := io.ReadFull(r, head)
		if err == nil {
			err = p.handle(head, r)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("gloosim: peer closed the connection")
			}
			p.fail(err)
			return
		}
	}
}

// handle handles the op that begins with head, and reads its payload.
func (p *pair) handle(head []byte, r io.Reader) error {
	h, err := parsePreamble(head)
	if err != nil {
		return err
	}
	if h.op == sendUnboundBuffer {
		t, err := p.claim(h)
		if err != nil {
			return err
		}
		if _, err = io.ReadFull(r, t.b); err != nil {
			err = fmt.Errorf("gloosim: read %v from peer: %w", h.slot, err)
		}
		t.done <- err
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	c := p.counts(h.slot)
	switch {
	case h.op == notifySendReady:
		c.announced = append(c.announced, h.length)
	case len(c.sends) > 0:
		t := pop(&c.sends)
		p.forget(h.slot, c)
		p.queue(h.slot, t, h.length)
	default:
		c.rooms = append(c.rooms, h.length)
	}
	return nil
}

// claim returns the transfer that a payload is for.
func (p *pair) claim(h preamble) (transfer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return transfer{}, p.err
	}
	c := p.counts(h.slot)
	if len(c.recvs) == 0 || len(c.announced) == 0 {
		return transfer{}, fmt.Errorf("gloosim: %v: payload of %d bytes that was not agreed upon", h.slot, h.length)
	}
	if room := len(c.recvs[0].b); h.length != c.announced[0] || h.length != uint64(room) {
		return transfer{}, fmt.Errorf("gloosim: %v: payload of %d bytes, %d announced, room for %d", h.slot, h.length, c.announced[0], room)
	}
	t := pop(&c.recvs)
	pop(&c.announced)
	p.forget(h.slot, c)
	return t, nil
}

// pop removes the first of queue, which has one.
func pop[T any](queue *[]T) T {
	q := *queue
	first := q[0]
	copy(q, q[1:])
	*queue = q[:len(q)-1]
	return first
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
