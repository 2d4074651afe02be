package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Peer is one peer's part of the Cache: the values that this proxy has put there, and the store of the values that the peer has put
// here.
type Peer struct {
	// Sending and Receiving are the shares of the peer's connections, and of its value streams, in the two budgets.
	Sending, Receiving memory.Share

	config    *Config
	ctx       context.Context // value streams are opened until it ends
	name      string
	lingering atomic.Int64 // bytes of values of lost streams that are being delivered

	submit submitLock // held by the goroutine that puts frames on the stream, in the order of their numbers

	mu      peerLock // guards all below
	store   *store   // nil: the peer has opened no value stream
	writer  *writer  // nil: there is no value stream to the peer
	epoch   uint64   // of the last value stream
	opened  time.Time
	opening bool // a value stream is being opened
	conns   map[frame.Tag]*conn
	notes   map[frame.Tag]int // for the next Delivered frames: Refs that were delivered here, or ended
}

// A conn is a connection that lives here, or that carries Refs which the peer may not have delivered yet.
type conn struct {
	here     bool     // it lives here
	refers   bool     // it has carried Refs of the writer, and has not ended at the peer
	farEnded bool     // it has ended at the peer
	after    place    // the end of the last part that it referred to; move sets it
	pending  []*entry // values of the Refs that were not delivered yet, in order
}

// maxPending bounds the Refs of a connection that a peer may leave undelivered: a value that is sent again takes no room there, and
// would be counted without end where the peer tells of no delivery.
const maxPending = 1 << 14

// openEvery is how long a lost value stream is not opened again.
const openEvery = time.Second

// Connected notes that a connection lives here, until Ended.
func (p *Peer) Connected(t frame.Tag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn(t).here = true
}

// Ended notes that a connection has ended here: no Ref on it will be delivered any more.
func (p *Peer) Ended(t frame.Tag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(p.store, t, ended)
	if c := p.conns[t]; c != nil {
		c.here = false
		p.drop(t, c)
	}
}

// conn returns the connection of a tag, which is new if need be. p.mu is held.
func (p *Peer) conn(t frame.Tag) *conn {
	c := p.conns[t]
	if c == nil {
		c = &conn{}
		p.conns[t] = c
	}
	return c
}

// drop forgets a connection that has ended here and has no Refs under way. p.mu is held.
func (p *Peer) drop(t frame.Tag, c *conn) {
	if !c.here && !c.refers {
		c.after.move(place{})
		delete(p.conns, t)
	}
}

// Ready reports whether values can be put at the peer. If there is no value stream one is opened, for the next time.
func (p *Peer) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready() != nil
}

// ready returns the writer, or nil and has a value stream opened. p.mu is held.
func (p *Peer) ready() *writer {
	if p.writer == nil && !p.opening && time.Since(p.opened) > openEvery && p.ctx.Err() == nil {
		p.opened, p.opening = time.Now(), true
		p.epoch++
		go p.open(p.epoch)
	}
	if p.writer == nil || p.writer.room == 0 {
		return nil
	}
	return p.writer
}

// open opens the value stream, and returns when it has ended.
func (p *Peer) open(epoch uint64) {
	c := p.config
	stream, err := c.Open(p.ctx, p.name, binary.AppendUvarint([]byte{frame.OpeningValues}, epoch))
	if err != nil {
		p.mu.Lock()
		p.opening = false
		p.mu.Unlock()
		c.Log.Warn("no values are shared with the peer for now", "peer", p.name, "err", err)
		return
	}
	w := newWriter(c, p.name, &p.Sending, stream, epoch)
	room := frame.Append(nil, frame.Frame{Kind: frame.Room, Body: binary.AppendUvarint(nil, uint64(c.Room))})
	if _, err := stream.Write(room); err != nil {
		stream.Reset(frame.ResetByFrames)
		p.mu.Lock()
		p.opening = false
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	p.writer, p.opening = w, false
	if p.store != nil {
		w.settle(p.store.granted)
	}
	p.mu.Unlock()
	w.wake()
	go p.control(w)
	for err == nil { // the peer writes nothing here: an error comes, the end
		_, err = stream.ReadChunk()
	}
	stream.Reset(frame.ResetByFrames)
	p.mu.Lock()
	held := w.used
	if p.writer == w {
		p.writer = nil
		for t, c := range p.conns {
			c.refers, c.pending = false, nil
			c.after.move(place{}) // another stream's values have the same numbers
			p.drop(t, c)
		}
	}
	p.mu.Unlock()
	close(w.dead)
	w.pipe.Wait()
	var reset *tunnel.ResetError
	switch {
	case p.ctx.Err() != nil: // this proxy ends and puts nothing any more
	case errors.As(err, &reset) && reset.Remote && reset.Code == frame.ResetByFrames: // the next stream may end like this one
		c.Log.Warn("the peer has reset the stream of shared values; its log may say why", "peer", p.name, "bytes", held, "err", err)
	case held > 0:
		c.Log.Info("shared values are lost; the next are put whole", "peer", p.name, "bytes", held, "err", err)
	}
}

// Put has the peer hold the next value of a block and returns the reference to it, which the connection must carry. fresh says
// that it was not held yet. Without ok the block must travel by itself: there is no value stream, no room, or the connection has
// ended at the peer, or has too many Refs that were not delivered.
func (p *Peer) Put(t frame.Tag, v Put) (r frame.ValueRef, fresh, ok bool) {
	p.submit.Lock()
	defer p.submit.Unlock()
	e, fresh, ok := p.put(t, &v, true)
	if !ok {
		return r, false, false
	}
	return frame.ValueRef{Epoch: e.epoch, ID: e.id, Size: len(v.Data)}, fresh, true
}

// put has the peer hold the next value of a block, and returns its entry, which has one ref more: of a Ref that the connection is to carry, or the caller's. submit is
// held.
func (p *Peer) put(t frame.Tag, v *Put, carries bool) (e *entry, fresh, ok bool) {
	p.mu.Lock()
	w, c := p.ready(), p.conns[t]
	if w == nil || c != nil && (c.farEnded || len(c.pending) >= maxPending) {
		p.mu.Unlock()
		return nil, false, false
	}
	e, fresh = w.entry(t, v)
	if e == nil {
		p.mu.Unlock()
		p.config.Metrics.FellBack(v.Choice.Codec.String(), v.Role, tensor.NoMemory)
		return nil, false, false
	}
	e.refs++
	if fresh || e.lost {
		e.served = append(e.served, t)
	}
	if carries {
		c = p.conn(t)
		c.refers = true
		c.pending = append(c.pending, e)
	}
	p.mu.Unlock()
	if !fresh {
		p.config.Metrics.SharedValue("again")
	} else {
		err := p.flush(w)
		if err != nil {
			w.memory.Give(e.reserved)
		} else {
			err = w.send(e, v, p.counterpart(w, e.slot, v))
		}
		if err != nil {
			return nil, false, false // the stream is lost, and with it the value
		}
		p.mu.Lock()
		e.slot.put = true
		p.mu.Unlock()
	}
	return e, fresh, true
}

// Await returns the value of a Ref that connection t carries, once the peer has put it; gone ends the wait. The caller must not
// change data, and must call release once it is delivered, which tells the peer as well.
func (p *Peer) Await(t frame.Tag, r frame.ValueRef, gone <-chan struct{}) (data []byte, release func(), err error) {
	p.mu.Lock()
	s := p.store
	p.mu.Unlock()
	switch {
	case s == nil:
		return nil, nil, ErrLost
	case s.epoch != r.Epoch:
		return nil, nil, fmt.Errorf("%w: the ref is of stream %d, and %d lives", ErrLost, r.Epoch, s.epoch)
	}
	v, err := s.await(r, gone)
	if err != nil {
		return nil, nil, err
	}
	return v.data, func() {
		s.release(v)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.note(s, t, 1)
	}, nil
}

// linger counts n more bytes of values of lost streams that are being delivered.
func (p *Peer) linger(n int64) { p.lingering.Add(n) }

const ended = -1 // in Peer.notes: the connection has ended here

// maxNotes bounds the connections that wait to be named in Delivered frames while the peer takes no value stream.
const maxNotes = 1 << 16

// note has the peer told that n more Refs to values of s were delivered here on a connection, or that the connection has ended here.
// p.mu is held. Refs to values of a lost store do not count: the peer has forgotten them, and would take others for delivered.
func (p *Peer) note(s *store, t frame.Tag, n int) {
	if s == nil || s != p.store {
		return
	}
	switch before := p.notes[t]; {
	case before == ended:
	case n == ended:
		p.notes[t] = ended
	default:
		p.notes[t] = before + n
	}
	if len(p.notes) > maxNotes {
		p.store.stream.Reset(frame.ResetByFrames)
	}
	if p.ready(); p.writer != nil {
		p.writer.wake()
	}
}

// delivered takes note that n more Refs of a connection were delivered at the peer; 0: that all were, or never will be. p.mu is
// held.
func (p *Peer) delivered(t frame.Tag, n int) {
	c := p.conns[t]
	if c == nil {
		return
	}
	pending := c.pending
	if n == 0 || n > len(pending) {
		n, c.farEnded = len(pending), c.farEnded || n == 0
	}
	for _, e := range pending[:n] {
		p.writer.unref(e)
	}
	if c.pending = pending[n:]; n == len(pending) {
		c.pending = nil
	}
	if c.farEnded {
		c.refers = false
		p.drop(t, c)
	}
}

// Predicts reports whether the peer wants the values of the tensors with that Base, whatever they gain themselves.
func (p *Peer) Predicts(job string, base uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writer != nil && p.writer.predicts[predicted{job, base}] > 0
}

// A Stats describes a Peer's values at one moment.
type Stats struct {
	Writing             bool   // there is a value stream to the peer
	WriterEpoch         uint64 // its number
	Room, Used          int64  // bytes that the peer grants, and that its store takes as far as this side knows
	Pending             int    // Refs that were not delivered yet
	Referring           int    // connections that have carried Refs, and have not ended at the peer
	Reverse             int    // slots of which a value was a difference to one of the peer
	Ahead               uint64 // values of a slot that the peer codes against and has not seen, at most
	Storing             bool   // the peer has a value stream here
	StoreEpoch          uint64 // its number
	Entries             int    // values in the store
	Stored              int64  // bytes that the store takes
	Kept                int    // slots of the store of which the peer keeps earlier values
	Lingering, Received int64  // bytes of lost streams' values that are being delivered; number of the last value that was stored
}

// Stats returns a snapshot.
func (p *Peer) Stats() (st Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Lingering = p.lingering.Load()
	for _, c := range p.conns {
		st.Pending += len(c.pending)
		if c.refers {
			st.Referring++
		}
	}
	if w := p.writer; w != nil {
		st.Writing, st.WriterEpoch, st.Room, st.Used = true, w.epoch, w.room, w.used
		for _, slot := range w.numbers {
			if slot.reversed {
				st.Reverse++
			}
			if slot.keeps {
				st.Ahead = max(st.Ahead, slot.version-slot.seen)
			}
		}
	}
	if s := p.store; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.Storing, st.StoreEpoch, st.Entries, st.Stored, st.Received = true, s.epoch, len(s.entries), s.used, int64(s.stored)
		for _, c := range s.copies {
			if c.kept {
				st.Kept++
			}
		}
	}
	return st
}
