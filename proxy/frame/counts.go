package frame

import (
	"iter"
	"sync/atomic"
)

// Counts counts frames by kind. The zero Counts is ready for use, by several goroutines; a nil one counts nothing.
type Counts struct{ of [len(kindNames)]atomic.Uint64 }

func (c *Counts) add(k Kind) {
	if c != nil {
		c.of[k].Add(1)
	}
}

// Of returns the number of frames of a kind.
func (c *Counts) Of(k Kind) uint64 { return c.of[k].Load() }

// Kinds iterates over all kinds.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := Bytes; k.valid(); k++ {
			if !yield(k) {
				return
			}
		}
	}
}
