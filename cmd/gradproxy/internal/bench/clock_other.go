//go:build !linux

package bench

import "time"

var start = time.Now()

// now returns the time since some moment: there is no clock of a thread's processor time in package syscall.
func now() time.Duration { return time.Since(start) }
