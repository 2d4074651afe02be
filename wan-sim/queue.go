package wansim

import (
	"slices"
	"time"
)

// A queue is the state of a bottleneck: the packets that it holds, which leave one after another. The zero queue has no
// limit and no rate, so it holds nothing.
type queue struct {
	rate int64     // bytes per second; 0: unlimited
	size int       // bytes that it holds at most, the packet in transmission included; 0: unlimited
	free time.Time // when all that it holds has left
	rem  uint64    // and the fraction of a nanosecond beyond that, times rate

	before []stretch // of the time until free, in order: the parts that were given to packets at other rates
}

// A stretch of a queue's time ends at until; it begins where the one before it ends.
type stretch struct {
	until time.Time
	rate  int64 // bytes per second
}

// set changes the queue from the next packet on.
func (q *queue) set(rate int64, size int) {
	if rate != q.rate && q.rate > 0 {
		q.before = append(q.before, stretch{q.free, q.rate})
	}
	q.rate, q.size, q.rem = rate, size, 0
}

// full reports whether a packet of n bytes finds no room at now.
func (q *queue) full(now time.Time, n int) bool {
	return q.size > 0 && q.free.After(now) && q.room(n).After(now)
}

// room returns from when on the queue has room for a packet of n bytes.
func (q *queue) room(n int) time.Time {
	if q.size == 0 || q.rate == 0 {
		return time.Time{}
	}
	if n > q.size { // more than fits: once it is idle
		return q.free
	}
	// Back from the end, through as much time as it takes to send the rest that the queue may hold.
	end, rate, left := q.free, float64(q.rate), float64(q.size-n)
	for _, s := range slices.Backward(q.before) {
		held := end.Sub(s.until).Seconds() * rate
		if held >= left {
			break
		}
		end, rate, left = s.until, float64(s.rate), left-held
	}
	return end.Add(-time.Duration(left / rate * 1e9))
}

// transmit returns when a packet of n bytes that is ready at t has left. Sizes add up exactly: the fraction of a
// nanosecond is carried from packet to packet while the queue is busy.
func (q *queue) transmit(t time.Time, n int) time.Time {
	if q.rate == 0 {
		return t
	}
	if t.After(q.free) {
		q.free, q.rem = t, 0
	}
	for len(q.before) > 0 && !q.before[0].until.After(t) {
		q.before = q.before[1:]
	}
	rate := uint64(q.rate)
	scaled := uint64(n)*1e9 + q.rem // n < 2³² bytes: below 2⁶³
	q.free = q.free.Add(time.Duration(scaled / rate))
	q.rem = scaled % rate
	return q.free
}
