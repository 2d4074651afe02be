package udp

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// A socket is a UDP socket that several goroutines write to.
type socket struct {
	*net.UDPConn
	offload atomic.Bool // the kernel cuts one write into datagrams
}

func newSocket(c *net.UDPConn, buffers func(fd int) error) *socket {
	s := &socket{UDPConn: c}
	s.offload.Store(tune(c, buffers))
	return s
}

// A way is how the datagrams of a connection leave.
type way struct {
	mu     wayLock
	socket *socket
	to     netip.AddrPort // invalid if the socket is connected
	with   [4][]byte      // for each Mark, the control messages that name it and the address from which datagrams leave; nil: the kernel chooses that
	alone  bool           // they leave one by one
	oob    []byte         // scratch
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
		return w.oneByOne(b, each, mark)
	}
	w.oob = segments(append(w.oob[:0], w.with[mark]...), each)
	_, _, err := w.socket.WriteMsgUDPAddrPort(b, w.oob, w.to)
	switch refused, forever := uncut(err); {
	case refused:
		if forever {
			w.socket.offload.Store(false)
		}
		return w.oneByOne(b, each, mark)
	case passing(err):
		return nil
	}
	return err
}

// oneByOne sends datagrams alone: one that is too long for the device must not take the others with it.
func (w *way) oneByOne(b []byte, each int, mark Mark) error {
	for first := true; first || len(b) > 0; first = false {
		d := b[:min(each, len(b))]
		b = b[len(d):]
		err := w.socket.write(d, w.with[mark], w.to)
		if err != nil && mark != 0 && unmarkable(err) { // without it, if the kernel takes none
			err = w.socket.write(d, w.with[0], w.to)
		}
		if err != nil {
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
