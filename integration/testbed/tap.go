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

// A Tap captures the traffic on the loopback device of a site: all bytes between its ranks and its proxy.
type Tap struct {
	fd   int
	ends atomic.Bool
	done chan struct{} // closed once the reader has ended

	pcap []byte // a classic pcap file; the reader's until done
	err  error  // of the reader, likewise
}

const (
	tapFrame  = 1<<16 + 64 // bytes: more than loopback's MTU
	tapBuffer = 64 << 20   // bytes that the kernel keeps for a reader that is late
)

// Tap starts a capture, which ends with Stop.
func (s *Site) Tap() (*Tap, error) {
	t := &Tap{done: make(chan struct{})}
	err := s.Do(func() (err error) {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // htons
		return errors.Join(
			// Every packet on loopback leaves and arrives.
			unix.SetsockoptInt(t.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer),
			unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100e3}),
			unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: lo.Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: capture at site %s: %w", s.Site, err)
	}
	// The header of a capture of Ethernet frames, microseconds (pcap-savefile(5)).
	for _, v := range []uint32{0xa1b2c3d4, 4<<16 | 2, 0, 0, tapFrame, 1} {
		t.pcap = binary.LittleEndian.AppendUint32(t.pcap, v)
	}
	go t.read()
	return t, nil
}

// read appends packets until there are none and the capture is to end.
func (t *Tap) read() {
	defer close(t.done)
	frame := make([]byte, tapFrame)
	for {
		n, _, err := unix.Recvfrom(t.fd, frame, 0)
		switch {
		case err == nil:
			now := time.Now()
			for _, v := range []int64{now.Unix(), int64(now.Nanosecond() / 1000), int64(n), int64(n)} {
				t.pcap = binary.LittleEndian.AppendUint32(t.pcap, uint32(v))
			}
			t.pcap = append(t.pcap, frame[:n]...)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			t.err = err
			return
		case t.ends.Load():
			return
		}
	}
}

// Stop ends the capture and returns it, a classic pcap file. A capture that lacks packets is an error.
func (t *Tap) Stop() (pcap []byte, err error) {
	t.ends.Store(true)
	<-t.done
	lost, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets were lost", lost.Drops)
	}
	if err = errors.Join(t.err, err, unix.Close(t.fd)); err != nil {
		return nil, fmt.Errorf("testbed: capture: %w", err)
	}
	return t.pcap, nil
}
