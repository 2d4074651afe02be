package udp

import (
	"net"
	"net/netip"
	"sync"
)

// A socket is a UDP socket of which several goroutines write.
type socket struct {
	*net.UDPConn
	offload bool // the kernel cuts one write into datagrams
}

func newSocket(c *net.UDPConn) *socket {
	return &socket{UDPConn: c, offload: tune(c)}
}

// A batch collects datagrams for one call. All but the last must have the same length.
type batch struct {
	mu   sync.Mutex
	held bool
	out  []byte
	each int // length of a datagram; 0: none is there
	n    int
	done bool // the last one was shorter: none may follow
	oob  []byte
}

// add appends a datagram to the batch. to is invalid for a connected socket.
func (b *batch) add(s *socket, to netip.AddrPort, p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held || !s.offload {
		return s.write(p, nil, to)
	}
	if b.n > 0 && (b.done || len(p) > b.each || b.n == maxBatch || len(b.out)+len(p) > maxBatchBytes) {
		if err := b.flush(s, to); err != nil {
			return err
		}
	}
	if b.n == 0 {
		b.each = len(p)
	}
	b.done = len(p) < b.each
	b.out = append(b.out, p...)
	b.n++
	return nil
}

func (b *batch) flush(s *socket, to netip.AddrPort) (err error) {
	switch {
	case b.n == 1:
		err = s.write(b.out, nil, to)
	case b.n > 1:
		b.oob = segments(b.oob[:0], b.each)
		err = s.write(b.out, b.oob, to)
	}
	b.out, b.n, b.done = b.out[:0], 0, false
	return err
}

// write sends a datagram, or several if oob says their length. That one of them is too long for the path, or that nobody listens
// there just now, is no error: it is lost like others.
func (s *socket) write(p, oob []byte, to netip.AddrPort) error {
	_, _, err := s.WriteMsgUDPAddrPort(p, oob, to)
	if passing(err) {
		return nil
	}
	return err
}
