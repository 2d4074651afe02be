package udp

import (
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
)

// Reads that one call does (recvmmsg). Each has readBuffer bytes of memory.
const (
	minReads = 2
	maxReads = 8
)

const maxTogether = maxReads // reads whose datagrams Next has be valid together

// A batch reads a socket, by several reads in one call. They become more while datagrams come faster than the calls
// take them, and fewer again once calls bring few. A connection on which nothing comes any more keeps the buffers that
// it has.
type batch struct {
	reads   []ipv4.Message // their buffers are also in buffers
	buffers []*buffer
	next    int // the read that take returns next
	filled  int // reads that the last call has filled
}

func newBatch() *batch {
	b := &batch{}
	b.resize(minReads)
	return b
}

// resize sets how many reads the next call does.
func (b *batch) resize(n int) {
	for len(b.buffers) > n {
		last := len(b.buffers) - 1
		b.buffers[last].release()
		b.buffers, b.reads = b.buffers[:last], b.reads[:last]
	}
	for len(b.buffers) < n {
		fresh := newBuffer(readBuffer)
		b.buffers = append(b.buffers, fresh)
		b.reads = append(b.reads, ipv4.Message{Buffers: [][]byte{fresh.data}, OOB: make([]byte, oobBuffer)})
	}
}

// take returns what the next read of s has brought, its control messages, and the sender. The memory is the batch's,
// and valid until the next call.
func (b *batch) take(s *socket) (data, oob []byte, from netip.AddrPort, err error) {
	if b.next == b.filled {
		switch { // by what the last call has brought
		case b.filled == len(b.reads) && b.filled < maxReads:
			b.resize(2 * b.filled)
		case b.filled <= len(b.reads)/4:
			b.resize(max(minReads, len(b.reads)/2))
		}
		b.next, b.filled = 0, 0
		if b.filled, err = s.batches.ReadBatch(b.reads, 0); err != nil {
			b.filled = 0
			return nil, nil, from, err
		}
	}
	m := &b.reads[b.next]
	b.next++
	if a, ok := m.Addr.(*net.UDPAddr); ok {
		from = a.AddrPort()
	}
	return m.Buffers[0][:m.N], m.OOB[:m.NN], from, nil
}

// waiting reports whether take returns datagrams for the layer above at once.
func (b *batch) waiting() bool {
	if b.next == b.filled {
		return false
	}
	m := &b.reads[b.next]
	_, ours := parseMessage(m.Buffers[0][:m.N])
	return m.N > 0 && !ours
}

// keep gives the buffer of the read that take has returned last to the caller.
func (b *batch) keep() *buffer {
	at := b.next - 1
	kept, fresh := b.buffers[at], newBuffer(readBuffer)
	b.buffers[at], b.reads[at].Buffers[0] = fresh, fresh.data
	return kept
}
