package tunnel

import (
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/allowance"
)

// The limits of a peer's openings. Each opening has this side dial a server, and a peer may withdraw it at once and
// send the next (the attack CVE-2023-44487 on HTTP/2). So openings take from an allowance: a stream that ends in order
// gives back the share of its opening, and one that was refused or reset does not. An opening that finds none waits its
// turn; one that is withdrawn meanwhile keeps its place in the queue, and among the streams that the peer may have
// open.
const (
	openingBurst = 2048 // openings at once
	openingRate  = 500  // a second, after them
	maxDeciding  = 1024 // that are shown to Config.Accept and wait for its answer; the others wait for these
)

// openings are the openings of one peer, in all its sessions.
type openings struct {
	mu        innermostLock
	allowance allowance.Allowance
	deciding  int
	queue     queue[func()]
	timer     *time.Timer // that begins the next one; nil: none is armed
}

// begin makes the allowance whole.
func (o *openings) begin() { o.allowance = allowance.New(openingRate, openingBurst, time.Now()) }

// come has an opening shown to Config.Accept, at once or when it is its turn, by a goroutine that calls show.
func (o *openings) come(show func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.push(show)
	o.next()
}

// answered notes that Config.Accept has answered.
func (o *openings) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deciding--
	o.next()
}

// endedInOrder gives back the share that the opening of a stream took, now that the stream has ended in order.
func (o *openings) endedInOrder() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.allowance.GiveBack(1)
	o.next()
}

// next begins the openings whose turn it is. mu is held.
func (o *openings) next() {
	now := time.Now()
	for o.queue.n > 0 && o.deciding < maxDeciding {
		if wait := o.allowance.Wait(1, now); wait > 0 {
			if o.timer == nil {
				o.timer = time.AfterFunc(wait+time.Millisecond, o.due)
			}
			return
		}
		o.allowance.Take(1, now)
		o.deciding++
		go o.queue.pop()()
	}
}

// due begins the openings that have waited for the allowance.
func (o *openings) due() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	o.next()
}
