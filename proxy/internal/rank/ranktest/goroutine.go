package ranktest

import (
	"bytes"
	"runtime"
	"strconv"
)

// number returns the number of the goroutine that calls it, in some microseconds.
func number() uintptr {
	b := make([]byte, 64)
	n, err := strconv.ParseUint(string(bytes.Fields(b[:runtime.Stack(b, false)])[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}
