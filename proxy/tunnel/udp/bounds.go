package udp

const (
	maxDatagram   = 16 << 10 // bytes of a datagram that is read alone: the longest record of DTLS, less its overhead
	MaxBatch      = 64       // datagrams in one call of WriteBatch: UDP_MAX_SEGMENTS of Linux
	MaxBatchBytes = 65000    // bytes in one: the length of an IP packet, less its headers
	SocketBuffer  = 4 << 20  // bytes that the kernel is asked to keep for a socket in each direction
	readBuffer    = 64 << 10 // bytes of one call
	oobBuffer     = 128      // bytes of the control messages of one call
)
