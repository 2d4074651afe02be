//go:build unix

package asmtest

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gradproxy/gradproxy/tensor"
)

// Guarded returns a copy of b behind which lies memory that must not be touched: a kernel that reads or writes on ends
// the test.
func Guarded(t *testing.T, b []byte) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (len(b) + page - 1) / page * page
	room, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(room) })
	if err := syscall.Mprotect(room[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	guarded := room[size-len(b) : size : size]
	copy(guarded, b)
	return guarded
}

// GuardedFloats is Guarded for values.
func GuardedFloats(t *testing.T, x []float32) []float32 {
	t.Helper()
	b := Guarded(t, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)))
	return tensor.View(b)
}
