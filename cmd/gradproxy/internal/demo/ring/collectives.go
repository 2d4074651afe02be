package ring

import (
	"encoding/binary"
	"math"
)

// AllReduce adds up all ranks' b, little-endian float32s of the same number on each, and leaves the sum in b, with the same
// bits on every rank. b belongs to the group until Wait returns.
func (g *Group) AllReduce(b []byte) *Work {
	return g.start(allReduce, func(x *exchange) error { return x.allReduce(b) })
}

// Broadcast leaves root's b, of the same length on all ranks, in every rank's b. b belongs to the group until Wait returns.
func (g *Group) Broadcast(b []byte, root int) *Work {
	return g.start(broadcast, func(x *exchange) error { return x.broadcast(b, root) })
}

// AllGather fills b, which is one block for each rank, all of one length, of which each rank has written its own. b belongs
// to the group until Wait returns.
func (g *Group) AllGather(b []byte) *Work {
	return g.start(allGather, func(x *exchange) error { return x.allGather(b) })
}

// Barrier is done when all ranks have called it.
func (g *Group) Barrier() *Work {
	return g.start(barrier, func(x *exchange) error { return x.barrier() })
}

// allReduce is the ring of allreduce.cc. While two messages of each direction are under way, what came before is added.
func (x *exchange) allReduce(b []byte) error {
	g := x.group
	p := newPlan(len(b), float32Len, g.size)
	before, after := (g.rank+g.size-1)%g.size, (g.rank+1)%g.size
	tmp := x.room(2 * p.segment)
	half := func(i int, s span) []byte { return span{i % 2 * p.segment, s.len}.of(tmp) }

	for i := range p.rounds() + 2 {
		if i >= 2 {
			send, recv := p.scatter(g.rank, i-2)
			if recv.len > 0 {
				if err := x.waitRecv(); err != nil {
					return err
				}
				addFloat32s(recv.of(b), half(i, recv))
			}
			if send.len > 0 {
				if err := x.waitSend(); err != nil {
					return err
				}
			}
		}
		if i < p.rounds() {
			send, recv := p.scatter(g.rank, i)
			if recv.len > 0 {
				x.recv(after, half(i, recv))
			}
			if send.len > 0 {
				x.send(before, send.of(b))
			}
		}
	}
	for i := range p.rounds() + 2 {
		if i >= 2 {
			send, recv := p.gather(g.rank, i-2)
			if recv.len > 0 {
				if err := x.waitRecv(); err != nil {
					return err
				}
			}
			if send.len > 0 {
				if err := x.waitSend(); err != nil {
					return err
				}
			}
		}
		if i < p.rounds() {
			send, recv := p.gather(g.rank, i)
			if recv.len > 0 {
				x.recv(after, recv.of(b))
			}
			if send.len > 0 {
				x.send(before, send.of(b))
			}
		}
	}
	return nil
}

const float32Len = 4 // bytes

// addFloat32s adds src to dst, element by element.
func addFloat32s(dst, src []byte) {
	src = src[:len(dst)]
	for len(dst) >= float32Len && len(src) >= float32Len {
		sum := math.Float32frombits(binary.LittleEndian.Uint32(dst)) + math.Float32frombits(binary.LittleEndian.Uint32(src))
		binary.LittleEndian.PutUint32(dst, math.Float32bits(sum))
		dst, src = dst[float32Len:], src[float32Len:]
	}
}

// broadcast is the binomial tree of broadcast.cc: in round i the ranks v < 2^i, counted from root, send to v + 2^i.
func (x *exchange) broadcast(b []byte, root int) error {
	g := x.group
	v := (g.rank - root + g.size) % g.size
	sends := 0
	for bit := 1; bit < g.size; bit <<= 1 {
		peer := (v ^ bit + root) % g.size
		switch {
		case v < bit && v+bit < g.size:
			x.send(peer, b)
			sends++
		case v >= bit && v < 2*bit:
			x.recv(peer, b)
			if err := x.waitRecv(); err != nil {
				return err
			}
		}
	}
	for range sends {
		if err := x.waitSend(); err != nil {
			return err
		}
	}
	return nil
}

// allGather is the ring of allgather.cc: each block goes on to the next rank in two halves, cut without regard to elements.
func (x *exchange) allGather(b []byte) error {
	g := x.group
	if len(b) == 0 {
		return nil
	}
	before, after := (g.rank+g.size-1)%g.size, (g.rank+1)%g.size
	block := len(b) / g.size
	halves := [2]span{{0, block / 2}, {block / 2, block - block/2}}
	at := func(rank, i int) []byte {
		h := halves[i%2]
		return span{(rank+g.size)%g.size*block + h.off, h.len}.of(b)
	}
	const underWay = 2
	rounds := 2 * (g.size - 1)
	for i := range rounds + underWay {
		if i >= underWay {
			if err := x.waitSend(); err != nil {
				return err
			}
			if err := x.waitRecv(); err != nil {
				return err
			}
		}
		if i < rounds {
			x.send(after, at(g.rank-i/2, i))
			x.recv(before, at(g.rank-i/2-1, i))
		}
	}
	return nil
}

// barrier is the dissemination barrier of barrier.cc: empty messages to the ranks 1, 2, 4 ... further on.
func (x *exchange) barrier() error {
	g := x.group
	for d := 1; d < g.size; d <<= 1 {
		x.recv((g.rank+g.size-d)%g.size, nil)
		x.send((g.rank+d)%g.size, nil)
		if err := x.waitRecv(); err != nil {
			return err
		}
		if err := x.waitSend(); err != nil {
			return err
		}
	}
	return nil
}
