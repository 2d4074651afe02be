package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the processor time that this thread has used. A goroutine that subtracts two of them is locked to its
// thread.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
