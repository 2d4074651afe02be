package proxy

import (
	"sync"
	"time"
)

// After tidyMany openings, once there was none for tidyAfter, the tidier has the Go runtime return memory to the
// system: the stacks and the garbage of connections that were opened at the same time. By itself the runtime would do
// so after two garbage collections, which are two minutes apart in an idle process.
const (
	tidyMany  = 256
	tidyAfter = 5 * time.Second
)

// A tidier counts openings, and frees memory after many.
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
