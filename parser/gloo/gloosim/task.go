package gloosim

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// A task is one rank's part of one collective: the messages that it sends and the messages that it receives, each list
// in order. [Run] and [Group] both carry tasks out.
type task struct {
	sends []send
	recvs []recv

	window    int  // sends that may be under way at a time; 0: all
	sendFirst bool // where a send and a recv are due together, the send is announced first
}

// A send can be announced once after messages have been received.
type send struct {
	peer, after int
	phase       int    // 1 or 2 of an all-reduce; else 0
	b           []byte // part of the task's buffer
}

// A recv can be posted once after messages have been received.
type recv struct {
	peer, after int
	into        []byte // part of the task's buffer
	sum         bool   // the message is added to it, and does not replace it
}

// take puts an arrived message in its place.
func (r recv) take(d tensor.DType, b []byte) {
	if r.sum {
		add(d, r.into, b)
	} else {
		copy(r.into, b)
	}
}

// newTask returns a rank's task on buf, which has elements of type d. In an all-gather buf has a block for each rank,
// and the rank's own is filled. root matters to a broadcast only.
func newTask(o Op, d tensor.DType, buf []byte, rank, ranks, root int) *task {
	t := new(task)
	switch o {
	case AllReduce:
		t.allReduce(d, buf, rank, ranks)
	case Broadcast:
		t.broadcast(buf, rank, ranks, root)
	case AllGather:
		t.allGather(buf, rank, ranks)
	case Barrier:
		t.barrier(rank, ranks)
	}
	return t
}

// underWay is how many rounds of a ring run at a time.
const underWay = 2

// allReduce is the ring of allreduce.cc: segments pass from each rank to the one before it. While two messages of each
// direction are under way, the message before them is added. The second phase begins when the first is over.
func (t *task) allReduce(d tensor.DType, buf []byte, rank, ranks int) {
	t.window = underWay
	p := newPlan(len(buf), d.Size(), ranks)
	left, right := (rank+ranks-1)%ranks, (rank+1)%ranks
	for phase, round := range [...]func(rank, i int) (send, recv span){p.scatter, p.gather} {
		received := []int{len(t.recvs)} // messages before each round
		for i := range p.rounds() {
			after := received[max(0, i+1-underWay)]
			out, in := round(rank, i)
			if in.len > 0 {
				t.recvs = append(t.recvs, recv{right, after, in.of(buf), phase == 0})
			}
			if out.len > 0 {
				t.sends = append(t.sends, send{left, after, phase + 1, out.of(buf)})
			}
			received = append(received, len(t.recvs))
		}
	}
}

// broadcast is the binomial tree of broadcast.cc: in round i the ranks v < 2^i, counted from root, send to v + 2^i.
func (t *task) broadcast(buf []byte, rank, ranks, root int) {
	v := (rank - root + ranks) % ranks
	for bit := 1; bit < ranks; bit <<= 1 {
		peer := (v ^ bit + root) % ranks
		switch {
		case v < bit && v+bit < ranks:
			t.sends = append(t.sends, send{peer, len(t.recvs), 0, buf})
		case v >= bit && v < 2*bit:
			t.recvs = append(t.recvs, recv{peer, 0, buf, false})
		}
	}
}

// allGather is the ring of allgather.cc: each block goes on to the next rank in two halves, cut without regard to
// elements.
func (t *task) allGather(buf []byte, rank, ranks int) {
	if len(buf) == 0 {
		return
	}
	t.window, t.sendFirst = underWay, true
	left, right := (rank+ranks-1)%ranks, (rank+1)%ranks
	block := len(buf) / ranks
	halves := [2]span{{0, block / 2}, {block / 2, block - block/2}}
	at := func(rank, i int) []byte { return halves[i%2].of(buf[(rank+ranks)%ranks*block:]) }
	for i := range 2 * (ranks - 1) {
		after := max(0, i+1-underWay)
		t.sends = append(t.sends, send{right, after, 0, at(rank-i/2, i)})
		t.recvs = append(t.recvs, recv{left, after, at(rank-i/2-1, i), false})
	}
}

// barrier is the dissemination barrier of barrier.cc: empty messages to the ranks 1, 2, 4 ... further on.
func (t *task) barrier(rank, ranks int) {
	t.window = 1
	for d := 1; d < ranks; d <<= 1 {
		after := len(t.recvs)
		t.recvs = append(t.recvs, recv{peer: (rank + ranks - d) % ranks, after: after})
		t.sends = append(t.sends, send{peer: (rank + d) % ranks, after: after})
	}
}

// add adds the elements of b to the elements of a.
func add(d tensor.DType, a, b []byte) {
	le := binary.LittleEndian
	b = b[:len(a)]
	switch d {
	case tensor.Float32:
		for ; len(a) >= 4 && len(b) >= 4; a, b = a[4:], b[4:] {
			le.PutUint32(a, math.Float32bits(math.Float32frombits(le.Uint32(a))+math.Float32frombits(le.Uint32(b))))
		}
	case tensor.Float64:
		for ; len(a) >= 8; a, b = a[8:], b[8:] {
			le.PutUint64(a, math.Float64bits(math.Float64frombits(le.Uint64(a))+math.Float64frombits(le.Uint64(b))))
		}
	case tensor.Int32:
		for ; len(a) >= 4; a, b = a[4:], b[4:] {
			le.PutUint32(a, le.Uint32(a)+le.Uint32(b))
		}
	case tensor.Int64:
		for ; len(a) >= 8; a, b = a[8:], b[8:] {
			le.PutUint64(a, le.Uint64(a)+le.Uint64(b))
		}
	default:
		x, y := make([]float32, len(a)/d.Size()), make([]float32, len(a)/d.Size())
		tensor.ToFloat32(x, a, d)
		tensor.ToFloat32(y, b, d)
		for i := range x {
			x[i] += y[i]
		}
		tensor.FromFloat32(a, x, d)
	}
}
