package tunnel

import "time"

// Settings of a carrier's TCP connection.
const (
	notSentLowat = 128 << 10        // bytes that may wait in the socket: bytes behind them wait here, where small messages overtake
	userTimeout  = 15 * time.Second // without acknowledgement, after which the kernel gives up
)
