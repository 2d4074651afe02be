//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A census counts the frames of the rows of real processes by kind.
type census struct {
	seeds, moved int
	crowded      bool // at least one of the seeds has little room for shared values
	frames       map[string]uint64
}

func (c *census) add(r row) {
	if c.frames == nil {
		c.frames = map[string]uint64{}
	}
	c.seeds, c.moved, c.crowded = c.seeds+1, c.moved+r.Moved, c.crowded || crowds(r.Seed)
	for kind, n := range r.Frames {
		c.frames[kind] += n
	}
}

// enough is the number of seeds that together must have frames of every kind. A single seed may lack a kind, since its
// faults may leave no time for it.
const enough = 5

// verdict returns an error if a kind of frame came in none of the seeds, and they were enough: then the seeds show
// nothing of that kind. Rest frames come only where another process takes connections over, and Evict frames only where
// there is little room for shared values.
func (c *census) verdict() error {
	if c.seeds < enough {
		return nil
	}
	var missing []string
	for kind := range frame.Kinds() {
		if kind == frame.Rest && c.moved == 0 || kind == frame.Evict && !c.crowded {
			continue
		}
		if c.frames[kind.String()] == 0 {
			missing = append(missing, kind.String())
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("no frames of the kinds %s came in %d seeds: they show nothing of them", strings.Join(missing, ", "), c.seeds)
}

// String lists the frames.
func (c *census) String() string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(c.frames)) {
		all = append(all, fmt.Sprintf("%s %d", kind, c.frames[kind]))
	}
	return strings.Join(all, ", ")
}
