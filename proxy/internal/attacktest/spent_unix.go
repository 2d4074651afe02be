//go:build unix

package attacktest

import (
	"syscall"
	"time"
)

// Spent returns the processor time of this process, the kernel's for it included.
func Spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
