package tunnel

import "time"

// Settings of a carrier's TCP connection.
const (
	notSentLowat = 128 << 10        // bytes that may wait in the socket: bytes behind them wait here, where small messages overtake
	userTimeout  = 15 * time.Second // without acknowledgement, after which the kernel gives up
)

// A confirmation is a connection's knowledge of the other host's answers: LinkState's Waits, Silence and Patience.
type confirmation struct {
	waits             bool
	silence, patience time.Duration
	network           Traffic // zero: not known
	packets, resent   uint64
	rtt               time.Duration
	backlog           uint64
}

// A confirmer is a connection that knows of the other host's answers. It may be asked at any time.
type confirmer interface {
	confirmation() confirmation
}

const bbrName = "bbr" // as the kernel calls it
