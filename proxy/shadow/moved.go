package shadow

import (
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// A group names the tensors of one job and role that go to one peer.
type group struct {
	peer, job string
	role      tensor.Role
}

// A Moved has the bytes of a group's values since the Shadow began, and the time in which they moved. Pauses of more
// than a second between values do not count, whether the job computes or does not run.
type Moved struct {
	Bytes int64
	Time  time.Duration
	last  time.Time // when a value last began or ended
}
