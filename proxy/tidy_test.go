package proxy

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is returned where there is enough that has no use, and only while the apps move nearly nothing.
func TestTidierReturnsSpareMemoryInQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var moved, spare, returned atomic.Int64
		x := tidier{moved: moved.Load, spare: func() uint64 { return uint64(spare.Load()) }, free: func() { spare.Store(0); returned.Add(1) }}
		done := make(chan bool)
		go func() { x.run(ctx); close(done) }()
		look := func(bytes, garbage, want int64) {
			t.Helper()
			moved.Add(bytes)
			spare.Add(garbage)
			returned.Store(0)
			time.Sleep(tidyEvery)
			if synctest.Wait(); returned.Load() != want {
				t.Errorf("%d bytes moved, %d spare: returned %d times, want %d", bytes, garbage, returned.Load(), want)
			}
		}
		look(0, 0, 0)
		look(0, tidySpare-1, 0)
		look(0, 1, 1)
		look(0, 0, 0)
		look(tidyMoved, 10*tidySpare, 0)
		look(tidyMoved, 0, 0)
		look(tidyMoved-1, 0, 1)
		cancel()
		<-done
	})
}

var sink []byte

// Garbage counts as memory that has no use, and is none once it is returned.
func TestSpareMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else is to collect it
	debug.FreeOSMemory()
	before := spareMemory()
	const garbage = 64 << 20
	for range garbage >> 20 {
		sink = make([]byte, 1<<20)
	}
	if got := spareMemory(); got < before+garbage*3/4 {
		t.Errorf("%d bytes have no use, want about %d", got, before+garbage)
	}
	sink = nil
	debug.FreeOSMemory()
	if got := spareMemory(); got > garbage/4 {
		t.Errorf("%d bytes have no use after they were returned", got)
	}
}
