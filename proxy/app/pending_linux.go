//go:build !race

package app

import (
	"syscall"
	"unsafe"
)

// pending reports whether a read from a socket that does not block would have an answer.
func pending(fd uintptr) bool {
	var b [1]byte
	_, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, syscall.MSG_PEEK, 0, 0)
	return e != syscall.EAGAIN
}
