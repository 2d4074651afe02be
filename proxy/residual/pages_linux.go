package residual

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minLarge is the fewest bytes of memory for which large pages are asked: two pages, so that one is whole wherever the
// memory begins.
const minLarge = 4 << 20

// largePages asks the kernel to back v with large pages, and returns v: coders run through such memory with each value,
// and the processor has to look up the address of every page. A kernel that refuses costs nothing but that.
func largePages[T byte | float32](v []T) []T {
	size := len(v) * int(unsafe.Sizeof(*new(T)))
	if size < minLarge {
		return v
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), size)
	page := os.Getpagesize()
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	whole := (size - skip) &^ (page - 1)
	unix.Madvise(b[skip:skip+whole], unix.MADV_HUGEPAGE)
	return v
}
