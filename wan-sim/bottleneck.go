package wansim

import (
	"fmt"
	"sync"
	"time"
)

// A Bottleneck is a queue and a rate that several links share, such as a site's uplink: a link that names it is passed
// behind it. It is safe for concurrent use.
type Bottleneck struct {
	mu    sync.Mutex
	queue queue
}

// NewBottleneck returns an idle bottleneck of so many bytes per second, above 0, headers from IP upwards included,
// whose queue holds so many bytes; 0: without limit.
func NewBottleneck(rate int64, size int) (*Bottleneck, error) {
	switch {
	case rate <= 0:
		return nil, fmt.Errorf("wansim: bottleneck of %d bytes/s: want more than 0", rate)
	case size < 0:
		return nil, fmt.Errorf("wansim: bottleneck with a queue of %d bytes: want 0 (unlimited) or more", size)
	}
	return &Bottleneck{queue: queue{rate: rate, size: size}}, nil
}

// Rate returns the bytes per second.
func (b *Bottleneck) Rate() int64 { return b.queue.rate }

// transit reports when a packet of n bytes that has been waiting since ready has left the bottleneck, or that it found
// the queue full at now.
func (b *Bottleneck) transit(ready, now time.Time, n int) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue.full(now, n) {
		return time.Time{}, false
	}
	return b.queue.transmit(ready, n), true
}
