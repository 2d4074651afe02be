package udp

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A socket is a UDP socket of which several goroutines write.
type socket struct {
	*net.UDPConn
	offload atomic.Bool // the kernel cuts one write into datagrams
}

func newSocket(c *net.UDPConn) *socket {
	s := &socket{UDPConn: c}
	s.offload.Store(tune(c))
	return s
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

	source []byte // control message that names the address from which they leave; nil: the kernel chooses it
}

// add appends a datagram to the batch. to is invalid for a connected socket.
func (b *batch) add(s *socket, to netip.AddrPort, p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held || !s.offload.Load() {
		return s.write(p, b.source, to)
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
		err = s.write(b.out, b.source, to)
	case b.n > 1:
		b.oob = segments(append(b.oob[:0], b.source...), b.each)
		_, _, err = s.WriteMsgUDPAddrPort(b.out, b.oob, to)
		switch refused, forever := uncut(err); {
		case refused:
			if forever {
				s.offload.Store(false)
			}
			err = b.oneByOne(s, to)
		case passing(err):
			err = nil
		}
	}
	b.out, b.n, b.done = b.out[:0], 0, false
	return err
}

// oneByOne sends the datagrams of the batch alone: one that is too long for the device must not take the others with it.
func (b *batch) oneByOne(s *socket, to netip.AddrPort) error {
	for rest := b.out; len(rest) > 0; {
		d := rest[:min(b.each, len(rest))]
		rest = rest[len(d):]
		if err := s.write(d, b.source, to); err != nil {
			return err
		}
	}
	return nil
}

// write sends a datagram. That it is too long for the path, or that nobody listens there just now, is no error: it is lost like others.
// oob are control messages.
func (s *socket) write(p, oob []byte, to netip.AddrPort) error {
	_, _, err := s.WriteMsgUDPAddrPort(p, oob, to)
	if passing(err) {
		return nil
	}
	return err
}
