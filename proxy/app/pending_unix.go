//go:build unix && (!linux || race)

package app

import "syscall"

// pending reports whether a read from a socket that does not block would have an answer.
func pending(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	return err != syscall.EAGAIN
}
