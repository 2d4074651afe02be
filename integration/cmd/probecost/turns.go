//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptSteps is STEPS of integration/testdata/probe_turns.c.
const keptSteps = 1 << 17

// turns is its struct turns.
type turns struct {
	steps atomic.Uint64
	begun [keptSteps]struct{ wall, processor uint64 }
}

// newTurns makes a file for a process's steps. They stay mapped for as long as this process lives.
func newTurns(path string) (*turns, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(turns{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the steps: %w", err)
	}
	return (*turns)(unsafe.Pointer(&memory[0])), nil
}

// takeTurns starts the job with a library that lets every other step or two run without probes, attaches them once, and
// compares the steps after some time.
func (m *measurement) takeTurns(ranks [2]*rank) (r result, err error) {
	if _, err := ranks[0].wait(settling); err != nil {
		return r, err
	}
	w, err := attach(ranks)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, w.probes.Close())
	}()
	m.settleDown()
	first := max(ranks[0].turns.steps.Load(), ranks[1].turns.steps.Load())
	before, err := w.seen()
	if err != nil {
		return r, err
	}
	time.Sleep(m.limit)
	after, err := w.seen()
	if err != nil {
		return r, err
	}
	end := min(ranks[0].turns.steps.Load(), ranks[1].turns.steps.Load())
	if end < first+8 || end-first > keptSteps/2 {
		return r, fmt.Errorf("%d steps are too few, or too many to be kept", end-first)
	}
	stretches := stretchesOf([2]*turns{ranks[0].turns, ranks[1].turns}, (first+3)/4*4, (end-1)/4*4)
	r.sums = 2 * float64(after-before) / float64(2*(end-first)) // of the steps with probes, which are half of them
	return r, r.judge(stretches, true)
}

// stretchesOf returns the steps from first to end, which are multiples of four, each as a stretch: from its first
// bucket to that of the next step.
func stretchesOf(ranks [2]*turns, first, end uint64) (all []stretch) {
	for i := first; i < end; i++ {
		s := stretch{with: i%4 == 1 || i%4 == 2, calls: 1}
		for _, t := range ranks {
			from, to := &t.begun[i%keptSteps], &t.begun[(i+1)%keptSteps]
			s.seconds += float64(to.wall-from.wall) / 2e9
			s.processor += float64(to.processor-from.processor) / 1e9
		}
		all = append(all, s)
	}
	return all
}

// compileTurns compiles the library that lets steps run without probes.
func compileTurns(path, dir string) (string, error) {
	return compile(filepath.Join(filepath.Dir(path), "probe_turns.c"), filepath.Join(dir, "probe_turns.so"))
}
