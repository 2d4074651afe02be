//go:build unix && (!linux || race)

package app

import "syscall"

// readNow reads the bytes that have come on a socket that does not block, EAGAIN if none have. It tells the race
// detector.
func readNow(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }
