package udp

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/net/ipv4"
)

// A socket is a UDP socket that several goroutines write to.
type socket struct {
	*net.UDPConn
	batches *ipv4.PacketConn // the same socket, also of IPv6: several reads or writes in one call
	offload atomic.Bool      // the kernel cuts one write into datagrams
}

func newSocket(c *net.UDPConn, buffers func(fd int) error) *socket {
	s := &socket{UDPConn: c, batches: ipv4.NewPacketConn(c)}
	s.offload.Store(tune(c, buffers))
	return s
}

// A way is how the datagrams of a connection leave.
type way struct {
	mu     wayLock
	socket *socket
	to     netip.AddrPort // invalid if the socket is connected
	with   [4][]byte      // for each Mark, the control messages that name it and the address from which datagrams leave; nil: the kernel chooses that
	alone  bool           // no write is cut by the kernel
	oob    []byte         // scratch
	writes []ipv4.Message // scratch, of apart
}

// moveTo has datagrams leave by a socket, to an address and from one that the control message source names.
func (w *way) moveTo(s *socket, to netip.AddrPort, source []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket, w.to = s, to
	where := to.Addr()
	if remote, ok := s.RemoteAddr().(*net.UDPAddr); ok {
		where = remote.AddrPort().Addr()
	}
	w.with[0] = source
	for mark := Mark(1); mark <= MarkBits; mark++ {
		w.with[mark] = marking(slices.Clone(source), mark, where)
	}
}

// write sends datagrams of each bytes (the last one may be shorter), with a mark.
func (w *way) write(b []byte, each int, mark Mark) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(b) <= each || w.alone || !w.socket.offload.Load() {
		return w.apart(b, each, mark)
	}
	w.oob = segments(append(w.oob[:0], w.with[mark]...), each)
	_, _, err := w.socket.WriteMsgUDPAddrPort(b, w.oob, w.to)
	switch refused, forever := uncut(err); {
	case refused:
		if forever {
			w.socket.offload.Store(false)
		}
		return w.apart(b, each, mark)
	case passing(err):
		return nil
	}
	return err
}

// apart sends datagrams by a write each: one that is too long for the device must not take the others with it. Several
// writes are one call (sendmmsg).
func (w *way) apart(b []byte, each int, mark Mark) error {
	if len(b) <= each {
		return w.one(b, mark)
	}
	var to net.Addr
	if w.to.IsValid() {
		to = net.UDPAddrFromAddrPort(w.to)
	}
	n := 0
	for ; len(b) > 0; n++ {
		if n == len(w.writes) {
			w.writes = append(w.writes, ipv4.Message{Buffers: make([][]byte, 1)})
		}
		m := &w.writes[n]
		m.Buffers[0], m.OOB, m.Addr = b[:min(each, len(b))], w.with[mark], to
		b = b[len(m.Buffers[0]):]
	}
	defer func() {
		for i := range n {
			w.writes[i].Buffers[0] = nil // the memory is the caller's
		}
	}()
	for left := w.writes[:n]; len(left) > 0; {
		n, err := w.socket.batches.WriteBatch(left, 0)
		if err != nil { // the first has not left
			if err := w.one(left[0].Buffers[0], mark); err != nil {
				return err
			}
			n = 1
		}
		left = left[n:]
	}
	return nil
}

// one sends a datagram.
func (w *way) one(d []byte, mark Mark) error {
	err := w.socket.write(d, w.with[mark], w.to)
	if err != nil && mark != 0 && unmarkable(err) { // without it, if the kernel takes none
		err = w.socket.write(d, w.with[0], w.to)
	}
	return err
}

// write sends a datagram. That it is too long for the path, or that nobody listens there just now, is no error: it is
// lost like others. oob are control messages.
func (s *socket) write(p, oob []byte, to netip.AddrPort) error {
	_, _, err := s.WriteMsgUDPAddrPort(p, oob, to)
	if passing(err) {
		return nil
	}
	return err
}
