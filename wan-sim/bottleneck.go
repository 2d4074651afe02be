package wansim

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Bottleneck is a queue and a rate that several links share, such as a site's uplink: a link that names it is passed
// behind it. It is safe for concurrent use.
type Bottleneck struct {
	mu   sync.Mutex
	path Path
}

// NewBottleneck returns an idle bottleneck of so many bytes per second, above 0, headers from IP upwards included, whose
// queue holds so many bytes; 0: without limit.
func NewBottleneck(rate int64, queue int) (*Bottleneck, error) {
	l := Link{Rate: rate, Queue: queue}
	if rate == 0 {
		return nil, errors.New("wansim: bottleneck of 0 bytes/s: want more")
	}
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("wansim: bottleneck: %w", err)
	}
	return &Bottleneck{path: *NewPath(l)}, nil
}

// Rate returns the bytes per second.
func (b *Bottleneck) Rate() int64 { return b.path.link.Rate }

// transit reports when a packet of n bytes that has been waiting since ready has left the bottleneck, or that it found the
// queue full at now.
func (b *Bottleneck) transit(ready, now time.Time, n int) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, f := b.path.offer(ready, now, n)
	return at, f == arrives
}
