//go:build amd64 || arm64

package ranktest

// address returns the address of the runtime's g of the goroutine that calls it, which no other goroutine has while this one lives.
func address() uintptr
