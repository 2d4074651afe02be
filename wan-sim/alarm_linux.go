package wansim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A timerfdAlarm is an alarm by timerfd_create(2), whose descriptor the runtime's poller watches: it rings within some
// ten microseconds and keeps no thread waiting.
type timerfdAlarm struct {
	fd   int
	file *os.File
	buf  [8]byte // how often it rang, which nobody asks
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wansim: timerfd: %w", err)
	}
	return &timerfdAlarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

func (a *timerfdAlarm) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm it
	unix.TimerfdSettime(a.fd, 0, &spec, nil)
}

func (a *timerfdAlarm) wait() bool {
	_, err := a.file.Read(a.buf[:])
	return err == nil
}

func (a *timerfdAlarm) close() { a.file.Close() }
