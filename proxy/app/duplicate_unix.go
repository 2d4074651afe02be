//go:build unix

package app

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// duplicate returns another descriptor of a socket.
func duplicate(raw syscall.RawConn) (f *os.File, err error) {
	var fd int
	e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(e, err); err != nil {
		return nil, fmt.Errorf("app: second descriptor of a connection: %w", err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}
