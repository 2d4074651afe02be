package wansim

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// vnetFrame returns a TUN frame of TCP segments of size bytes, joined, behind headers of IP and TCP bytes.
func vnetFrame(gso byte, ip, tcp, size, payload int) []byte {
	f := make([]byte, vnetHeader+ip+tcp+payload)
	f[1] = gso
	binary.NativeEndian.PutUint16(f[4:], uint16(size))
	binary.NativeEndian.PutUint16(f[6:], uint16(ip))
	if ip+13 <= len(f)-vnetHeader {
		f[vnetHeader+ip+12] = byte(tcp / 4 << 4)
	}
	return f
}

func TestOnWireCountsEachSegmentsHeaders(t *testing.T) {
	const none, v4, v6 = unix.VIRTIO_NET_HDR_GSO_NONE, unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6
	for name, c := range map[string]struct {
		frame          []byte
		packets, bytes int
	}{
		"a packet":               {vnetFrame(none, 20, 32, 0, 1448), 1, 1500},
		"IPv4":                   {vnetFrame(v4, 20, 32, 1448, 3*1448), 3, 4500},
		"IPv6":                   {vnetFrame(v6, 40, 32, 1428, 2*1428), 2, 3000},
		"the last one smaller":   {vnetFrame(v4, 20, 32, 1448, 2*1448+1), 3, 3053},
		"with congestion marks":  {vnetFrame(v4|unix.VIRTIO_NET_HDR_GSO_ECN, 20, 20, 1460, 2*1460), 2, 3000},
		"one segment":            {vnetFrame(v4, 20, 32, 1448, 100), 1, 152},
		"no payload":             {vnetFrame(v4, 20, 32, 1448, 0), 1, 52},
		"header cut short":       {vnetFrame(v4, 20, 0, 1448, 5), 1, 25},
		"segments of zero bytes": {vnetFrame(v4, 20, 32, 0, 100), 1, 152},
	} {
		if packets, bytes := onWire(c.frame); packets != c.packets || bytes != c.bytes {
			t.Errorf("%s: %d packets of %d bytes, want %d of %d", name, packets, bytes, c.packets, c.bytes)
		}
	}
}

func TestFrameQueueKeepsFramesInOrder(t *testing.T) {
	var q frameQueue
	next, expect := byte(0), byte(0)
	push := func(n int) {
		b := q.space()
		for i := range n {
			b[i] = next
		}
		q.push(0, n)
		next++
	}
	pop := func(n int) {
		f, ok := q.first()
		if !ok || len(f.data) != n || f.data[0] != expect || f.data[n-1] != expect {
			t.Fatalf("a frame of %d bytes beginning with %d, want %d and %d", len(f.data), f.data[0], n, expect)
		}
		q.pop()
		expect++
	}
	for round := range 50 { // waves of up to 5000 frames, which wrap and grow
		for i := range round * 100 {
			push(1 + i%1500)
		}
		for i := range round * 100 {
			pop(1 + i%1500)
		}
	}
	for i := range 100 { // a standing queue, of frames as large as they get
		push(maxFrame)
		if i >= 40 {
			pop(maxFrame)
		}
	}
	for range 40 {
		pop(maxFrame)
	}
	if _, ok := q.first(); ok || q.bytes != 0 {
		t.Errorf("%d bytes are left", q.bytes)
	}
	if len(q.spare) > spareSize/slabSize {
		t.Errorf("%d slabs are kept", len(q.spare))
	}
}
