package cache

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A Peer is one peer's part of the Cache: the values that this proxy has put there, and the store of the values that
// the peer has put here.
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

	answering bool          // the peer's value stream will be answered
	pause     time.Duration // before the last try to
}

// A conn is a connection that lives here, or that carries Refs which the peer may not have delivered yet.
type conn struct {
	here     bool     // it lives here
	refers   bool     // it has carried Refs of the writer, and has not ended at the peer
	farEnded bool     // it has ended at the peer
	after    place    // the end of the last part that it referred to; move sets it
	pending  []*entry // values of the Refs that were not delivered yet, in order
}

// Connected notes that a connection lives here, until Ended.
func (p *Peer) Connected(t frame.Tag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn(t).here = true
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

// Predicts reports whether the peer wants the values of the tensors with that Base even if coding them saves nothing.
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
	Reverse             int    // slots that had a value coded as a difference to a value of the peer
	Ahead               uint64 // values of a slot that the peer codes against and has not seen, at most
	Storing             bool   // the peer has a value stream here
	StoreEpoch          uint64 // its number
	Entries             int    // values in the store
	Stored              int64  // bytes that the store takes
	Kept                int    // slots of the store whose earlier values the peer keeps
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
