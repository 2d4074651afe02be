package tunnel

// SocketOptions set options of sockets, by their descriptors, that take CAP_NET_ADMIN.
type SocketOptions interface {
	// Congestion gives a TCP socket the congestion control that the Config names; for "" and "auto" bbr.
	Congestion(fd int) error
	// Buffers gives a UDP socket buffers of DatagramBuffer bytes, whatever the system's limit is.
	Buffers(fd int) error
}
