package tunnel

import (
	"math/bits"
	"sync"
)

// Memory of records over datagrams, which is used again: a classStep of a power of two is the most by which a piece is
// longer than its record.
const (
	classBits = 3
	classStep = 1 << classBits
)

var recordMemory [32 * classStep]sync.Pool // of *[]byte, by class

// recordClass returns the class of the shortest memory of n bytes, and its length: n, rounded up so that only the first
// classBits+1 of its bits count.
func recordClass(n int) (class, size int) {
	n = max(n, 64)
	low := max(bits.Len(uint(n-1))-1-classBits, 0)
	steps := (n-1)>>low + 1 // classStep+1 to 2*classStep
	return low*classStep + steps - classStep - 1, steps << low
}

// newRecord returns memory for a record of n bytes. It may hold the bytes of another record.
func newRecord(n int) []byte {
	class, size := recordClass(n)
	if b, ok := recordMemory[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, size)
}

// freeRecord takes memory back that newRecord has returned, and that nobody uses any more.
func freeRecord(b []byte) {
	class, size := recordClass(cap(b))
	if size == cap(b) {
		recordMemory[class].Put(&b)
	}
}
