package wansim

import (
	"container/heap"
	"errors"
	"sync"
	"time"
)

// A line is one direction of a link inside the process: all that crosses it shares its bottleneck. Its times are read
// from the link's own clock, which stands still during a black hole.
type line struct {
	alarm alarm

	mu      sync.Mutex
	path    *Path
	rtt     time.Duration // a lost packet of a stream is this late
	window  int           // bytes that a stream's sender may be ahead of its reader
	carried Counters
	due     arrivals
	seq     uint64
	frozen  time.Duration // how far the link's clock is behind
	until   time.Time     // when the last black hole ends
	closed  bool
}

// An arrival is something that happens at the far end at a time.
type arrival struct {
	at      time.Time
	seq     uint64 // keeps the order of arrivals at the same time
	deliver func()
}

// newLines returns the lines of both directions of a link, whose arrivals happen, at the times of an alarm, on
// goroutines that end with close.
func newLines(ab, ba Link, newAlarm func() (alarm, error)) (x, y *line, err error) {
	if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
		return nil, nil, err
	}
	var alarms [2]alarm
	for i := range alarms {
		if alarms[i], err = newAlarm(); err != nil {
			if i == 1 {
				alarms[0].close()
			}
			return nil, nil, err
		}
	}
	x = &line{alarm: alarms[0], path: NewPath(ab)}
	y = &line{alarm: alarms[1], path: newPath(ba, 1)}
	rtt := ab.Delay + ba.Delay
	x.setLink(ab, rtt)
	y.setLink(ba, rtt)
	go x.run()
	go y.run()
	return x, y, nil
}

func (x *line) now() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.clock()
}

// clock returns the link's time. x.mu is held.
func (x *line) clock() time.Time {
	now := time.Now()
	if now.Before(x.until) {
		now = x.until
	}
	return now.Add(-x.frozen)
}

// real returns when the link's clock will show t.
func (x *line) real(t time.Time) time.Time { return t.Add(x.frozen) }

// arrive makes deliver be called at the time at, after all that arrives until then. x.mu is held.
func (x *line) arrive(at time.Time, deliver func()) {
	x.seq++
	heap.Push(&x.due, arrival{at, x.seq, deliver})
	if x.due[0].seq == x.seq {
		x.rearm()
	}
}

func (x *line) rearm() {
	if len(x.due) > 0 && !x.closed {
		x.alarm.set(time.Until(x.real(x.due[0].at)))
	}
}

func (x *line) run() {
	var batch []func()
	for x.alarm.wait() {
		x.mu.Lock()
		now := x.clock()
		for len(x.due) > 0 && !x.due[0].at.After(now) {
			batch = append(batch, heap.Pop(&x.due).(arrival).deliver)
		}
		x.rearm()
		x.mu.Unlock()
		for _, deliver := range batch {
			deliver()
		}
		clear(batch)
		batch = batch[:0]
	}
}

// pause stops the link's clock until d from now.
func (x *line) pause(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	begin := time.Now()
	end := begin.Add(d)
	if begin.Before(x.until) {
		begin = x.until
	}
	if end.After(begin) {
		x.frozen += end.Sub(begin)
		x.until = end
	}
	x.rearm()
}

func (x *line) setLink(l Link, rtt time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.path.SetLink(l)
	x.rtt, x.window = rtt, windowOf(l, rtt)
}

// windowOf returns the bytes that a sender may be ahead of the reader: two round trips, so that a lost packet alone
// does not stop it, and the bytes that the bottleneck holds; as much as TCP would take with its buffers tuned to the
// path.
func windowOf(l Link, rtt time.Duration) int {
	const minimum, maximum = 256 << 10, 64 << 20 // bytes
	rtt += l.Jitter
	if l.Rate == 0 {
		if rtt == 0 {
			return minimum
		}
		return maximum
	}
	onWay := float64(l.Rate) * rtt.Seconds()
	queue := onWay
	if l.Queue > 0 {
		queue = float64(l.Queue)
	}
	return int(min(minimum+2*onWay+queue, maximum))
}

func (x *line) stats() Counters {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.carried
}

// close ends the line; bytes on their way never arrive.
func (x *line) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.closed = true
		x.alarm.close()
	}
}

// arrivals is a heap by time.
type arrivals []arrival

func (h arrivals) Len() int { return len(h) }
func (h arrivals) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h arrivals) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *arrivals) Push(x any)   { *h = append(*h, x.(arrival)) }
func (h *arrivals) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = arrival{}
	*h = old[:len(old)-1]
	return last
}
