//go:build unix && (!linux || race)

package proxy

import "syscall"

// readNow reads what has come on a socket that does not block, EAGAIN if nothing has. It tells the race detector.
func readNow(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }
