package proxy

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Each tidyEvery the tidier has the Go runtime return memory to the system if at least tidySpare of it has no use, and
// the apps have moved less than tidyMoved since the last look: the garbage and the free memory that many openings, or a
// job that is over, have left. By itself the runtime keeps as much memory as the largest heap of late needed, and looks
// for garbage every two minutes in an idle process. While a job runs nothing is returned, since it would need the
// memory again, and pools of buffers would be emptied.
const (
	tidyEvery = 30 * time.Second
	tidySpare = 8 << 20
	tidyMoved = 1 << 20
)

// A tidier returns memory that has no use.
type tidier struct {
	moved func() int64  // bytes between the apps and the proxy so far
	spare func() uint64 // bytes that could be returned
	free  func()

	before int64 // of moved, at the last look
}

func newTidier(moved func() int64) *tidier {
	return &tidier{moved: moved, spare: spareMemory, free: debug.FreeOSMemory}
}

// run looks until ctx ends.
func (t *tidier) run(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.look()
		}
	}
}

// look returns memory if now is the time.
func (t *tidier) look() {
	now := t.moved()
	idle := now-t.before < tidyMoved
	t.before = now
	if idle && t.spare() >= tidySpare {
		t.free()
	}
}

// spareMemory returns how many bytes of the heap are garbage, or free and not returned to the system. All objects
// beyond the ones that the last collection found in use count as garbage, also new ones that are in use.
func spareMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	for _, x := range s {
		if x.Value.Kind() != metrics.KindUint64 { // of another version of Go
			return 0
		}
	}
	objects, live, free := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	return max(objects, live) - live + free
}
