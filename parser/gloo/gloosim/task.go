package gloosim

import (
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// A task is one rank's part of one call: messages to send and to receive, each in order.
type task struct {
	call  *Call
	index int // of the call
	rank  int
	sends []send
	recvs []recv

	announced, sent  int // of sends
	posted, received int // of recvs
}

// A send can be announced once after messages have been received.
type send struct {
	peer, size, after, phase int
	data                     func() []byte
}

// A recv can be posted once after messages have been received.
type recv struct {
	peer, size, after int
	apply             func([]byte)
}

func newTask(c *Call, index, rank, ranks int) *task {
	t := &task{call: c, index: index, rank: rank}
	switch c.Op {
	case AllReduce:
		t.ring(ranks)
	case Broadcast:
		t.tree(ranks)
	case AllGather:
		t.gather(ranks)
	}
	return t
}

// ring is an all-reduce: segments pass from each rank to the one before it, two under way at a time.
func (t *task) ring(n int) {
	buf := append([]byte(nil), t.call.Data(t.rank)...)
	size, e := len(buf), t.call.DType.Size()
	limit := e * max(1, (1<<20)/e)
	up := func(a, m int) int { return (a + m - 1) / m * m }
	segments := up(max((size+limit-1)/limit, 2*n), n)
	per := segments / n
	g := up((size+segments-1)/segments, e)
	segment := func(first, i int) []byte {
		j := ((first*per+i)%segments + segments) % segments
		return buf[min(j*g, size):min((j+1)*g, size)]
	}
	left, right := (t.rank+n-1)%n, (t.rank+1)%n
	for phase := 1; phase <= 2; phase++ {
		for i := range segments - per {
			out, in := segment(t.rank+2-phase, i), segment(t.rank+3-phase, i)
			if len(out) > 0 {
				t.sends = append(t.sends, send{left, len(out), max(0, len(t.recvs)-1), phase, func() []byte { return out }})
			}
			if len(in) > 0 {
				apply := func(b []byte) { copy(in, b) }
				if phase == 1 {
					apply = func(b []byte) { add(t.call.DType, in, b) }
				}
				t.recvs = append(t.recvs, recv{right, len(in), max(0, len(t.recvs)-1), apply})
			}
		}
	}
}

// add adds the elements of b to those of a.
func add(d tensor.DType, a, b []byte) {
	switch d {
	case tensor.Float64:
		for i := 0; i < len(a); i += 8 {
			x := math.Float64frombits(binary.LittleEndian.Uint64(a[i:])) + math.Float64frombits(binary.LittleEndian.Uint64(b[i:]))
			binary.LittleEndian.PutUint64(a[i:], math.Float64bits(x))
		}
	case tensor.Int32:
		for i := 0; i < len(a); i += 4 {
			binary.LittleEndian.PutUint32(a[i:], binary.LittleEndian.Uint32(a[i:])+binary.LittleEndian.Uint32(b[i:]))
		}
	case tensor.Int64:
		for i := 0; i < len(a); i += 8 {
			binary.LittleEndian.PutUint64(a[i:], binary.LittleEndian.Uint64(a[i:])+binary.LittleEndian.Uint64(b[i:]))
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

// tree is a broadcast from rank 0: in round i the ranks below 2^i send to those 2^i above them.
func (t *task) tree(n int) {
	var buf []byte
	size := len(t.call.Data(0))
	if t.rank == 0 {
		buf = t.call.Data(0)
	}
	for bit := 1; bit < n; bit <<= 1 {
		switch {
		case t.rank < bit && t.rank+bit < n:
			t.sends = append(t.sends, send{t.rank + bit, size, len(t.recvs), 0, func() []byte { return buf }})
		case t.rank >= bit && t.rank < 2*bit:
			t.recvs = append(t.recvs, recv{t.rank - bit, size, 0, func(b []byte) { buf = b }})
		}
	}
}

// gather is an all-gather: blocks, each in two pieces that heed no element, pass from each rank to the one after it.
func (t *task) gather(n int) {
	size := len(t.call.Data(t.rank))
	all := make([][]byte, n)
	for r := range all {
		all[r] = make([]byte, size)
	}
	copy(all[t.rank], t.call.Data(t.rank))
	for i := range 2 * (n - 1) {
		out, in := all[(t.rank-i/2+n)%n], all[(t.rank-1-i/2+2*n)%n]
		from, to := 0, size/2
		if i%2 == 1 {
			from, to = size/2, size
		}
		t.sends = append(t.sends, send{(t.rank + 1) % n, to - from, max(0, i-1), 0, func() []byte { return out[from:to] }})
		t.recvs = append(t.recvs, recv{(t.rank + n - 1) % n, to - from, max(0, i-1), func(b []byte) { copy(in[from:to], b) }})
	}
}
