//go:build amd64 || arm64

package ranktest

// The runtime has no exported identity of a goroutine but in the text of runtime.Stack, which takes microseconds: too
// long at each lock. So a few lines of assembly read the register or the thread's memory that holds g; other
// architectures take the text (goroutine_other.go).

// address returns the address of the runtime's g of the goroutine that calls it, which no other goroutine has while
// this one lives.
func address() uintptr
