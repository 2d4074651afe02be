package proxy

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is given back once after many openings, when they have ended, and not after few.
func TestMemoryIsGivenBackAfterManyOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given atomic.Int32
		x := tidier{free: func() { given.Add(1) }}
		opens := func(n int, want int32) {
			t.Helper()
			for range n {
				time.Sleep(tidyAfter / 2)
				x.opened()
			}
			if synctest.Wait(); given.Load() != want {
				t.Errorf("given back %d times, want %d", given.Load(), want)
			}
		}
		opens(tidyMany-1, 0)
		time.Sleep(time.Hour)
		opens(100, 0)
		time.Sleep(time.Hour)
		opens(tidyMany-1, 1)
	})
}
