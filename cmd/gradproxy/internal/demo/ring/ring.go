// Package ring is a client of Gloo, the library under torch.distributed's "gloo" backend: it speaks Gloo's TCP transport
// byte for byte, so that who reads its connections cannot tell it from PyTorch. It is written from Gloo's sources
// (github.com/facebookincubator/gloo at cc44198, May 2025), to which comments refer by file.
//
// A group is a full mesh of connections, one for each pair of ranks. All integers on the wire are little-endian. Of a
// pair, the rank with the greater published address connects (transport/tcp/device.cc, isInitiator), and first writes its
// sequence number, 8 bytes, in one piece. Then both directions carry ops, each a preamble of six u64 (transport/tcp/pair.h):
//
//	nbytes    48 + the payload that follows
//	opcode    1 SEND_UNBOUND_BUFFER, with payload; 2 NOTIFY_SEND_READY; 3 NOTIFY_RECV_READY
//	slot      which transfer: kind of collective << 56 | tag << 24 (types.h)
//	offset    0
//	length    bytes of the transfer
//	roffset   0
//
// No payload flows uninvited: the sender writes NOTIFY_SEND_READY, the receiver NOTIFY_RECV_READY, in whichever order, and
// a payload follows when both have been written. They are counted for each slot; between slots there is no order.
package ring

import (
	"errors"
	"fmt"
)

// A Group is one rank's end of a process group. Every rank calls the same collectives in the same order, from one goroutine;
// each call takes the next tag. Two of them run at a time, in the order of the calls, as in torch's ProcessGroupGloo.
type Group struct {
	rank, size int
	pairs      []*pair // by rank; nil for this one
	tag        uint32  // of the next call
	tasks      chan task
}

// workers is how many collectives run at a time (torch: ProcessGroupGloo::Options::threads).
const workers = 2

// ErrClosed is what collectives return after Close.
var ErrClosed = errors.New("ring: group is closed")

type task struct {
	slot slotID
	run  func(*exchange) error
	work *Work
}

// Work is a collective under way.
type Work struct {
	done chan struct{}
	err  error
}

// Wait returns when the collective is done. After an error the group is of no more use, and the contents of all buffers
// are unspecified, but no longer change.
func (w *Work) Wait() error {
	<-w.done
	return w.err
}

// newGroup takes over connections that are ready for ops, by rank.
func newGroup(rank int, pairs []*pair) *Group {
	g := &Group{rank: rank, size: len(pairs), pairs: pairs, tasks: make(chan task, 64)}
	for range workers {
		go g.serve()
	}
	return g
}

// Rank returns this process's number, from 0.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks, at least 2.
func (g *Group) Size() int { return g.size }

// Stats returns how many bytes this rank has written to its connections and read from them, preambles included.
func (g *Group) Stats() (sent, received int64) {
	for _, p := range g.pairs {
		if p != nil {
			sent, received = sent+p.sent.Load(), received+p.received.Load()
		}
	}
	return sent, received
}

// Close closes the connections; collectives under way fail with ErrClosed. No call may follow.
func (g *Group) Close() {
	g.Abort(ErrClosed)
	close(g.tasks)
}

// Abort makes all collectives, under way and to come, fail with err. Any goroutine may call it, at any time.
func (g *Group) Abort(err error) {
	for _, p := range g.pairs {
		if p != nil {
			p.fail(err)
		}
	}
}

// start queues a collective of a kind under the next tag.
func (g *Group) start(k kind, run func(*exchange) error) *Work {
	w := &Work{done: make(chan struct{})}
	g.tasks <- task{slot(k, g.tag), run, w}
	g.tag++
	return w
}

// serve runs collectives one after another.
func (g *Group) serve() {
	x := &exchange{group: g, sent: make(chan error, 2*g.size), received: make(chan error, 2*g.size)}
	for t := range g.tasks {
		x.slot = t.slot
		if err := t.run(x); err != nil {
			g.Abort(err)
			x.drain()
			t.work.err = fmt.Errorf("rank %d: %v: %w", g.rank, t.slot, err)
		}
		close(t.work.done)
	}
}
