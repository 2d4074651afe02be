package udp

const (
	maxDatagram   = 9000     // bytes of a datagram that is written or read: jumbo frames
	maxBatch      = 64       // datagrams in one call: UDP_MAX_SEGMENTS of Linux
	maxBatchBytes = 65000    // bytes in one call: the length of an IP packet, less its headers
	socketBuffer  = 4 << 20  // bytes that the kernel is asked to keep for a socket in each direction
	readBuffer    = 64 << 10 // bytes of one call
	oobBuffer     = 128      // bytes of the control messages of one call
)
