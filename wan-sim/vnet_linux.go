package wansim

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// vnetHeader is the size of struct virtio_net_hdr (linux/virtio_net.h), which precedes every packet of a TUN device
// with IFF_VNET_HDR, in the machine's byte order:
//
//	flags 1 | gso_type 1 | hdr_len 2 | gso_size 2 | csum_start 2 | csum_offset 2
const vnetHeader = 10

// maxFrame is the most that one read of a TUN device returns.
const maxFrame = vnetHeader + 1<<16

// onWire returns how many packets the frame is on the wire, and how many IP bytes they have: each segment of a packet
// that the kernel has not segmented has headers of its own.
func onWire(frame []byte) (packets, bytes int) {
	packet := frame[vnetHeader:]
	bytes = len(packet)
	size := int(binary.NativeEndian.Uint16(frame[4:]))
	tcp := int(binary.NativeEndian.Uint16(frame[6:])) // csum_start: with TSO always where TCP begins
	if frame[1] == unix.VIRTIO_NET_HDR_GSO_NONE || size == 0 || tcp+13 > len(packet) {
		return 1, bytes
	}
	headers := tcp + int(packet[tcp+12]>>4)*4
	packets = max(1, (bytes-headers+size-1)/size)
	return packets, bytes + (packets-1)*headers
}
