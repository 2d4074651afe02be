//go:build !amd64 && !arm64

package ranktest

// address returns the number of the goroutine that calls it.
func address() uintptr { return number() }
