package tunnel

import "sync/atomic"

// A near is this site as its sessions know it.
type near struct {
	reporter
	pad      int // Config.Pad
	streams  int // Config.Streams
	window   int // credit that the peer's streams begin with
	draining atomic.Bool
	closing  atomic.Bool
}
