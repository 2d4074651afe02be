package gloosim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Group is one rank's end of a process group. Every rank calls the same collectives in the same order, from one
// goroutine; each call takes the next tag. Two of them run at a time, in the order of the calls, as in torch's
// ProcessGroupGloo.
type Group struct {
	rank, size int
	pairs      []*pair // by rank; nil for this one
	tag        uint32  // of the next call
	orders     chan order
}

// workers is how many collectives run at a time (torch: ProcessGroupGloo::Options::threads).
const workers = 2

// ErrClosed is returned by collectives after Close.
var ErrClosed = errors.New("gloosim: group is closed")

// An order is a collective that waits for its turn.
type order struct {
	slot slotID
	task *task
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
	g := &Group{rank: rank, size: len(pairs), pairs: pairs, orders: make(chan order, 64)}
	for range workers {
		go g.serve()
	}
	return g
}

// Rank returns this process's number, from 0.
func (g *Group) Rank() int { return g.rank }

// NextTag returns the tag of the next collective, as torch's ProcessGroup::nextTag does for its own. Only the goroutine
// that calls collectives may call it.
func (g *Group) NextTag() uint32 { return g.tag }

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
	close(g.orders)
}

// Abort makes all collectives, under way and to come, fail with err. Any goroutine may call it, at any time.
func (g *Group) Abort(err error) {
	for _, p := range g.pairs {
		if p != nil {
			p.fail(err)
		}
	}
}

// AllReduce adds up all ranks' b, little-endian float32s of the same number on each, and leaves the sum in b, with the
// same bits on every rank. b belongs to the group until Wait returns.
func (g *Group) AllReduce(b []byte) *Work { return g.start(AllReduce, b, 0) }

// Broadcast leaves root's b, of the same length on all ranks, in every rank's b. b belongs to the group until Wait
// returns.
func (g *Group) Broadcast(b []byte, root int) *Work { return g.start(Broadcast, b, root) }

// AllGather fills b, which is one block for each rank, all of one length. Each rank must have written its own. b
// belongs to the group until Wait returns.
func (g *Group) AllGather(b []byte) *Work { return g.start(AllGather, b, 0) }

// Barrier is done when all ranks have called it.
func (g *Group) Barrier() *Work { return g.start(Barrier, nil, 0) }

// start queues a collective under the next tag.
func (g *Group) start(o Op, b []byte, root int) *Work {
	w := &Work{done: make(chan struct{})}
	g.orders <- order{slot(o, g.tag), newTask(o, tensor.Float32, b, g.rank, g.size, root), w}
	g.tag++
	return w
}

// serve runs collectives one after another.
func (g *Group) serve() {
	x := &exchange{group: g, sent: make(chan error, 2*g.size), received: make(chan error, 2*g.size)}
	for o := range g.orders {
		x.slot = o.slot
		if err := x.run(o.task); err != nil {
			g.Abort(err)
			x.drain()
			o.work.err = fmt.Errorf("rank %d: %v: %w", g.rank, o.slot, err)
		}
		close(o.work.done)
	}
}

// An exchange has the transfers of the collective under way: Gloo's unbound buffer. In each direction at most 2 * size
// are posted and not yet waited for.
type exchange struct {
	group *Group
	slot  slotID

	sent, received     chan error
	sending, receiving int              // posted and not yet waited for
	scratch            [underWay][]byte // messages that are to be added, kept from one collective to the next
}

// run carries a task out. Messages from one peer arrive in order, and so do all of a task that has several under way.
func (x *exchange) run(t *task) error {
	posted, announced, taken := 0, 0, 0
	arriving := func(i int) []byte {
		r := t.recvs[i]
		if !r.sum {
			return r.into
		}
		s := &x.scratch[i%underWay]
		*s = slices.Grow((*s)[:0], len(r.into))[:len(r.into)]
		return *s
	}
	post := func() {
		for ; posted < len(t.recvs) && t.recvs[posted].after <= taken; posted++ {
			x.receiving++
			x.group.pairs[t.recvs[posted].peer].recv(x.slot, transfer{arriving(posted), x.received})
		}
	}
	announce := func() error {
		for ; announced < len(t.sends) && t.sends[announced].after <= taken; announced++ {
			for t.window > 0 && x.sending >= t.window {
				if err := x.waitSend(); err != nil {
					return err
				}
			}
			x.sending++
			x.group.pairs[t.sends[announced].peer].send(x.slot, transfer{t.sends[announced].b, x.sent})
		}
		return nil
	}
	for {
		if !t.sendFirst {
			post()
		}
		if err := announce(); err != nil {
			return err
		}
		post()
		if taken == len(t.recvs) {
			break
		}
		x.receiving--
		if err := <-x.received; err != nil {
			return err
		}
		if r := t.recvs[taken]; r.sum {
			r.take(tensor.Float32, arriving(taken))
		}
		taken++
	}
	for x.sending > 0 {
		if err := x.waitSend(); err != nil {
			return err
		}
	}
	return nil
}

// waitSend waits for one message to be written.
func (x *exchange) waitSend() error {
	x.sending--
	return <-x.sent
}

// drain waits for all transfers that are posted, after the connections have failed, so that no buffer changes any more.
func (x *exchange) drain() {
	for ; x.sending > 0; x.sending-- {
		<-x.sent
	}
	for ; x.receiving > 0; x.receiving-- {
		<-x.received
	}
}
