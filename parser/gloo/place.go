package gloo

import "math/bits"

// place notes the sender's rank, once an all-reduce has passed whole: the process's memory tells the rank and the
// lengths of the messages do not contradict it, or only one rank sends messages of these lengths.
func (c *counted) place(e *observedReduce) {
	rings := [...]struct {
		ring
		known bool
	}{{e.ring, e.bucket != nil && !e.strays}, {e.call.ring, e.call.fits != nil && !e.call.strays}}
	for _, r := range rings {
		if !r.known || !r.full() || e.lengths.count != r.messages() {
			continue
		}
		if m := e.call.member; m.Ranks == r.ranks && r.senders>>m.Rank&1 == 1 {
			c.conn.members.prove(c.side, m.Rank, m.Ranks)
		}
		if bits.OnesCount64(r.senders) == 1 {
			c.conn.members.prove(c.side, bits.TrailingZeros64(r.senders), r.ranks)
		}
	}
}
