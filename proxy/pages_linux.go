package proxy

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leastLarge is the bytes of memory for which large pages are asked: those of two, of which one is whole wherever they begin.
const leastLarge = 4 << 20

// largePages returns v once the kernel is asked to back it with large pages, if it may be: coders run through such memory with
// each value, and have to look up where it is for every page. Where the kernel does not, nothing is lost.
func largePages[T byte | float32](v []T) []T {
	size := len(v) * int(unsafe.Sizeof(*new(T)))
	if size < leastLarge {
		return v
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), size)
	page := os.Getpagesize()
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	whole := (size - skip) &^ (page - 1)
	unix.Madvise(b[skip:skip+whole], unix.MADV_HUGEPAGE)
	return v
}
