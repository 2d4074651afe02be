package quota

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of the calling thread. The time in which the machine runs other programs is not
// in it.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return sinceStart()
	}
	return time.Duration(t.Nano())
}
