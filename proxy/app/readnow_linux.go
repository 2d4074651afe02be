//go:build !race

package app

import (
	"syscall"
	"unsafe"
)

// readNow reads the bytes that have come on a socket that does not block, EAGAIN if none have. The scheduler is not
// told: it would take a call that copies for tens of microseconds for one that waits, and give the processor to another
// thread meanwhile.
func readNow(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
