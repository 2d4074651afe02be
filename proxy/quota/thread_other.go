//go:build !linux

package quota

import "time"

// threadTime returns the time since this process started, in place of the calling thread's processor time.
func threadTime() time.Duration { return sinceStart() }
