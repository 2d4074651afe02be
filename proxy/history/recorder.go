package history

import (
	"sync"
	"time"
)

// A Name names a series. One with an empty Job and Link has all bytes between this site and a peer; the others are of
// one job, or of the connections that are of no job.
type Name struct {
	Peer string `json:"peer"`
	Job  string `json:"job"`
	Link bool   `json:"link"` // of all jobs
}

// A Sample has the counters and the state of a series at a time.
type Sample struct {
	Name
	Raw       int64 // bytes that apps have sent to the peer
	Wire      int64 // bytes that the tunnel was handed for them
	Delivered int64 // bytes that apps got
	Sent      int64 // bytes that the link carried to the peer; of a job, its part
	Received  int64 // bytes that the link carried from the peer; likewise

	Down    bool          // the link is down, or in an outage
	Outage  time.Duration // that has passed since the outage began; 0: there is none, or its beginning is not known
	RTT     time.Duration // 0: unknown
	Goodput float64       // bytes per second; 0: unknown
}

// maxSeries bounds the series of a Recorder. Beyond it jobs have none, and at last peers.
const maxSeries = 64

// Memory is the maximum of bytes that a Recorder takes.
const Memory = maxSeries * seriesMemory

// seriesMemory is the bytes of a series with all its slots.
const seriesMemory = 58 << 10

// The rings, from the finest on: the seconds of a slot, and the number of slots.
var rings = [...]struct {
	step int64
	size int
}{{1, 300}, {10, 360}, {240, 360}}

// Steps lists the seconds of a slot in each ring.
func Steps() []int {
	var all []int
	for _, r := range rings {
		all = append(all, int(r.step))
	}
	return all
}

// A Recorder keeps the history of all series. The zero Recorder is empty. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	last   time.Time // of the last Add; zero: there was none
	rings  [len(rings)]ring
	series map[Name]*series
	order  []*series
	mended time.Time // the beginning of the outage that was noted last, and
	seen   time.Time // when
}

// A ring says which slots of all series hold a time.
type ring struct {
	slots []int64 // number of the slot at its place: Unix time / step; 0: empty
	now   int64   // number of the newest slot
}

// A series has the rises of one Name.
type series struct {
	name  Name
	seen  Sample // the last one
	slots [len(rings)][]slot
}

// A slot has the rises of a time.
type slot struct {
	raw, wire, delivered, sent, received int64
	down                                 float32 // seconds
	rtt, goodput                         float32 // seconds, and bytes per second: the last ones that were known
}

// Add notes the counters of all series at a time. A counter that fell has begun anew.
func (r *Recorder) Add(now time.Time, all []Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := now.Sub(r.last)
	if r.last.IsZero() || took < 0 || took > time.Minute {
		took = time.Second
	}
	r.last = now
	r.advance(now)
	for _, x := range all {
		s := r.of(x.Name)
		if s == nil {
			continue
		}
		if x.Outage > took && !s.seen.Down {
			r.mend(s, now.Add(took-x.Outage), now) // a slot has the rises of the second before it
			r.mended, r.seen = now.Add(-x.Outage), now
		}
		rise := s.rise(&x)
		if x.Down {
			rise.down = float32(took.Seconds())
		}
		rise.rtt, rise.goodput = float32(x.RTT.Seconds()), float32(x.Goodput)
		for i := range r.rings {
			s.slots[i][place(i, r.rings[i].now)].add(&rise)
		}
	}
}

// mend notes in the slots of a time an outage that was not seen as one then.
func (r *Recorder) mend(s *series, from, to time.Time) {
	for i := range r.rings {
		step := time.Duration(rings[i].step) * time.Second
		for number := max(from.Unix()/rings[i].step, r.rings[i].now-int64(rings[i].size)+1); number <= to.Unix()/rings[i].step; number++ {
			p := place(i, number)
			if r.rings[i].slots[p] != number {
				continue // the process did not run
			}
			begin := time.Unix(number*rings[i].step, 0)
			end := begin.Add(step)
			if begin.Before(from) {
				begin = from
			}
			if end.After(to) {
				end = to
			}
			down := &s.slots[i][p].down
			*down = min(*down+float32(end.Sub(begin).Seconds()), float32(step.Seconds()))
		}
	}
}

// place returns where a slot stands in its ring.
func place(ring int, number int64) int { return int(number % int64(rings[ring].size)) }

// advance begins the slots of a time. Time that goes backwards adds to the newest slots.
func (r *Recorder) advance(now time.Time) {
	for i := range r.rings {
		g := &r.rings[i]
		if g.slots == nil {
			g.slots = make([]int64, rings[i].size)
		}
		if number := now.Unix() / rings[i].step; number > g.now {
			g.now = number
			r.begin(i, number)
		}
	}
}

// begin makes a slot of all series an empty one with that number.
func (r *Recorder) begin(i int, number int64) {
	p := place(i, number)
	r.rings[i].slots[p] = number
	for _, s := range r.order {
		s.slots[i][p] = slot{}
	}
}

// of returns the series of a name; nil: there are too many.
func (r *Recorder) of(n Name) *series {
	if s := r.series[n]; s != nil {
		return s
	}
	if len(r.order) >= maxSeries {
		return nil
	}
	s := &series{name: n}
	for i := range rings {
		s.slots[i] = make([]slot, rings[i].size)
	}
	if r.series == nil {
		r.series = map[Name]*series{}
	}
	r.series[n] = s
	r.order = append(r.order, s)
	return s
}

// rise returns the rise of the counters since the last sample.
func (s *series) rise(x *Sample) slot {
	since := func(now, before int64) int64 {
		if now < before {
			return max(now, 0)
		}
		return now - before
	}
	l := &s.seen
	rise := slot{raw: since(x.Raw, l.Raw), wire: since(x.Wire, l.Wire), delivered: since(x.Delivered, l.Delivered),
		sent: since(x.Sent, l.Sent), received: since(x.Received, l.Received)}
	s.seen = *x
	return rise
}

// add adds a rise, and takes the state from it where that is known.
func (s *slot) add(rise *slot) {
	s.raw += rise.raw
	s.wire += rise.wire
	s.delivered += rise.delivered
	s.sent += rise.sent
	s.received += rise.received
	s.down += rise.down
	if rise.rtt > 0 {
		s.rtt = rise.rtt
	}
	if rise.goodput > 0 {
		s.goodput = rise.goodput
	}
}
