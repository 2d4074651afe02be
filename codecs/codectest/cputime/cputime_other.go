//go:build !linux

package cputime

import "time"

var start = time.Now()

// Now returns the time since some moment: there is no clock of a thread's processor time in package syscall.
func Now() time.Duration { return time.Since(start) }
