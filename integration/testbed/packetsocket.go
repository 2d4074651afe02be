//go:build linux

package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

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

// openPackets opens a packetSocket on a device of the caller's network namespace, with an option of SOL_PACKET. Its reader begins with read.
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
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100e3}),
		unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index})); err != nil {
		return nil, errors.Join(err, unix.Close(s.fd))
	}
	return s, nil
}

// read calls take with each packet and the side from which it came, until there are none and the socket is to end. take must not keep the packet.
func (s *packetSocket) read(take func(packet []byte, from *unix.SockaddrLinklayer)) {
	defer close(s.done)
	frame := make([]byte, packetFrame)
	for {
		n, from, err := unix.Recvfrom(s.fd, frame, 0)
		switch {
		case err == nil:
			if link, ok := from.(*unix.SockaddrLinklayer); ok {
				take(frame[:n], link)
			}
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			s.err = err
			return
		case s.ends.Load():
			return
		}
	}
}

// stop ends the reader once no packet waits for it, and closes the socket. That the kernel has dropped packets is an error.
func (s *packetSocket) stop() error {
	s.ends.Store(true)
	<-s.done
	lost, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets were lost", lost.Drops)
	}
	return errors.Join(s.err, err, unix.Close(s.fd))
}
