//go:build linux

package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	packetFrame  = 1<<16 + 64 // bytes: more than loopback's MTU
	packetBuffer = 64 << 20   // bytes that the kernel keeps for a reader that is late
)

// A packetSocket reads the packets on a device, until stop.
type packetSocket struct {
	fd   int
	ends atomic.Bool
	done chan struct{} // closed once the reader has ended
	err  error         // of the reader, when it has ended
}

// openPackets opens a packetSocket on a device of the caller's network namespace, with an option of SOL_PACKET. Its
// reader begins with read.
func openPackets(device string, option int) (*packetSocket, error) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	s := &packetSocket{done: make(chan struct{})}
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // htons
	if err := errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_PACKET, option, 1),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, packetBuffer),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100e3}),
		unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index})); err != nil {
		return nil, errors.Join(err, unix.Close(s.fd))
	}
	return s, nil
}

// read calls take with each packet, the side from which it came and the time at which the kernel saw it, until there
// are none and the socket is to end. take must not keep the packet.
func (s *packetSocket) read(take func(packet []byte, from *unix.SockaddrLinklayer, at time.Duration)) {
	defer close(s.done)
	frame, control := make([]byte, packetFrame), make([]byte, 64)
	for {
		n, k, _, from, err := unix.Recvmsg(s.fd, frame, control, 0)
		switch {
		case err == nil:
			if link, ok := from.(*unix.SockaddrLinklayer); ok {
				take(frame[:n], link, stamp(control[:k]))
			}
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			s.err = err
			return
		case s.ends.Load():
			return
		}
	}
}

// stop ends the reader once no packet waits for it, and closes the socket. That the kernel has dropped packets is an
// error.
func (s *packetSocket) stop() error {
	s.ends.Store(true)
	<-s.done
	lost, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets were lost", lost.Drops)
	}
	return errors.Join(s.err, err, unix.Close(s.fd))
}

// stamp returns the time in a packet's control messages, since 1970; 0: there is none.
func stamp(control []byte) time.Duration {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Duration(binary.NativeEndian.Uint64(m.Data))*time.Second + time.Duration(binary.NativeEndian.Uint64(m.Data[8:]))
		}
	}
	return 0
}
