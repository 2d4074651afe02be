package proxy

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is returned where there is enough that has no use, and only while the apps move nearly nothing.
func TestTidierReturnsSpareMemoryInQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var moved int64
		spare, returned := uint64(0), 0
		x := tidier{moved: func() int64 { return moved }, spare: func() uint64 { return spare }, free: func() { spare = 0; returned++ }}
		done := make(chan bool)
		go func() { x.run(ctx); close(done) }()
		look := func(bytes int64, garbage uint64, want int) {
			t.Helper()
			moved, spare, returned = moved+bytes, spare+garbage, 0
			time.Sleep(tidyEvery)
			if synctest.Wait(); returned != want {
				t.Errorf("%d bytes moved, %d spare: returned %d times, want %d", bytes, garbage, returned, want)
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
