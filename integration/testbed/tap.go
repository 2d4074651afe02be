//go:build linux

package testbed

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Tap captures the traffic on the loopback device of a site: all bytes between its ranks and its proxy.
type Tap struct {
	socket *packetSocket
	pcap   []byte // a classic pcap file; the reader's until the socket has stopped
}

// Tap starts a capture, which ends with Stop.
func (s *Site) Tap() (*Tap, error) {
	t := &Tap{}
	err := s.Do(func() (err error) {
		t.socket, err = openPackets("lo", unix.PACKET_IGNORE_OUTGOING) // every packet on loopback leaves and arrives
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: capture at site %s: %w", s.Site, err)
	}
	// The header of a capture of Ethernet frames, microseconds (pcap-savefile(5)).
	for _, v := range []uint32{0xa1b2c3d4, 4<<16 | 2, 0, 0, packetFrame, 1} {
		t.pcap = binary.LittleEndian.AppendUint32(t.pcap, v)
	}
	go t.socket.read(t.add)
	return t, nil
}

// add appends a packet.
func (t *Tap) add(packet []byte, _ *unix.SockaddrLinklayer, at time.Duration) {
	n := int64(len(packet))
	for _, v := range []int64{int64(at / time.Second), int64(at % time.Second / time.Microsecond), n, n} {
		t.pcap = binary.LittleEndian.AppendUint32(t.pcap, uint32(v))
	}
	t.pcap = append(t.pcap, packet...)
}

// Stop ends the capture and returns it, a classic pcap file. A capture that lacks packets is an error.
func (t *Tap) Stop() (pcap []byte, err error) {
	if err := t.socket.stop(); err != nil {
		return nil, fmt.Errorf("testbed: capture: %w", err)
	}
	return t.pcap, nil
}
