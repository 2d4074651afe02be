//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptCalls is CALLS of integration/testdata/bucket_time.c.
const keptCalls = 1 << 16

// times is its struct times.
type times struct {
	calls       atomic.Uint64
	nanoseconds [keptCalls]uint32
}

// compileTimes compiles the library that measures calls into a folder, and returns its path.
func compileTimes(path, dir string) (string, error) {
	return compile(filepath.Join(filepath.Dir(path), "bucket_time.c"), filepath.Join(dir, "bucket_time.so"))
}

func compile(source, library string) (string, error) {
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-fexceptions", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, out)
	}
	return library, nil
}

// newTimes makes a file for the times of a process's calls. They stay mapped for as long as this process lives.
func newTimes(path string) (*times, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(times{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the times of calls: %w", err)
	}
	return (*times)(unsafe.Pointer(&memory[0])), nil
}

// since returns the times of the calls after the first n, in seconds and sorted: all, if they are not too many to be
// kept.
func (t *times) since(n uint64) (all []float64, err error) {
	end := t.calls.Load()
	if end-n > keptCalls/2 {
		return nil, fmt.Errorf("%d calls for buckets are too many for a stretch", end-n)
	}
	for ; n < end; n++ {
		all = append(all, float64(atomic.LoadUint32(&t.nanoseconds[n%keptCalls]))/1e9)
	}
	slices.Sort(all)
	return all, nil
}
