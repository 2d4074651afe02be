package udp

import (
	"net"
	"net/netip"
	"slices"
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

	socket *socket
	to     netip.AddrPort // invalid if the socket is connected
	source []byte         // control message that names the address from which they leave; nil: the kernel chooses it
	alone  bool           // they leave one by one
	mark   Mark           // with which they leave
	where  netip.Addr     // to which they go
	with   []byte         // source, and the control message for mark
}

// turn has datagrams leave by a socket, to an address and from one, also the ones that are there already.
func (b *batch) turn(s *socket, to netip.AddrPort, source []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.socket, b.to, b.source, b.where = s, to, source, to.Addr()
	if remote, ok := s.RemoteAddr().(*net.UDPAddr); ok {
		b.where = remote.AddrPort().Addr()
	}
	b.controls()
}

// setMark has the datagrams that are added from now on leave with a mark.
func (b *batch) setMark(mark Mark) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mark == b.mark {
		return nil
	}
	var err error
	if b.n > 0 {
		err = b.flush()
	}
	b.mark = mark
	b.controls()
	return err
}

func (b *batch) controls() {
	if b.with = b.source; b.mark != 0 {
		b.with = marking(slices.Clone(b.source), b.mark, b.where)
	}
}

// write sends a datagram with the batch's mark, or without it if the kernel takes none.
func (b *batch) write(p []byte) error {
	err := b.socket.write(p, b.with, b.to)
	if err != nil && b.mark != 0 && unmarkable(err) {
		err = b.socket.write(p, b.source, b.to)
	}
	return err
}

// add appends a datagram to the batch.
func (b *batch) add(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held || b.alone || !b.socket.offload.Load() {
		return b.write(p)
	}
	if b.n > 0 && (b.done || len(p) > b.each || b.n == maxBatch || len(b.out)+len(p) > maxBatchBytes) {
		if err := b.flush(); err != nil {
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

func (b *batch) flush() (err error) {
	s, to := b.socket, b.to
	switch {
	case b.n == 1:
		err = b.write(b.out)
	case b.n > 1:
		b.oob = segments(append(b.oob[:0], b.with...), b.each)
		_, _, err = s.WriteMsgUDPAddrPort(b.out, b.oob, to)
		switch refused, forever := uncut(err); {
		case refused:
			if forever {
				s.offload.Store(false)
			}
			err = b.oneByOne()
		case passing(err):
			err = nil
		}
	}
	b.out, b.n, b.done = b.out[:0], 0, false
	return err
}

// oneByOne sends the datagrams of the batch alone: one that is too long for the device must not take the others with it.
func (b *batch) oneByOne() error {
	for rest := b.out; len(rest) > 0; {
		d := rest[:min(b.each, len(rest))]
		rest = rest[len(d):]
		if err := b.write(d); err != nil {
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
