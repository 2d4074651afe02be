package proxy

import (
	"sync"
	"time"
)

// After tidyMany openings, and once there were none for tidyAfter, the Go runtime gives back the memory that they have
// left: the stacks and the garbage of connections that were opened side by side. By itself it needs two collections of
// garbage for that, which come two minutes apart in a process that has nothing to do.
const (
	tidyMany  = 256
	tidyAfter = 5 * time.Second
)

// A tidier counts openings.
type tidier struct {
	free     func() // debug.FreeOSMemory
	mu       sync.Mutex
	openings int
	timer    *time.Timer // nil: there were few
}

// opened notes the end of an opening.
func (t *tidier) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.openings++; t.openings < tidyMany {
		return
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(tidyAfter, t.tidy)
	} else {
		t.timer.Reset(tidyAfter)
	}
}

func (t *tidier) tidy() {
	t.mu.Lock()
	t.openings, t.timer = 0, nil
	t.mu.Unlock()
	t.free()
}
