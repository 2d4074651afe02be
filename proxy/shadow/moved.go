package shadow

import (
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// A group is the tensors of a job and role to a peer.
type group struct {
	peer, job string
	role      tensor.Role
}

// A Moved is the bytes of a group's values since the Shadow began, and the time in which they moved: without what the
// job computed for more than a second, and without the hours in which it did not run.
type Moved struct {
	Bytes int64
	Time  time.Duration
	last  time.Time // a value began or ended
}
