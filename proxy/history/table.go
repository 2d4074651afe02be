package history

import (
	"cmp"
	"slices"
	"time"
)

// A Table has all series over the slots of one ring. Its JSON names are stable.
type Table struct {
	Step   int      `json:"step"`  // seconds of a slot
	Span   int      `json:"span"`  // seconds that the ring holds
	Times  []int64  `json:"times"` // Unix times at which the slots begin, rising; slots in which the process did not run are left out
	Series []Series `json:"series"`
}

// A Series has a value for each of the Table's times.
type Series struct {
	Name
	Raw       []int64   `json:"raw_bytes"`
	Wire      []int64   `json:"wire_bytes"`
	Delivered []int64   `json:"delivered_bytes"`
	Sent      []int64   `json:"sent_bytes"`
	Received  []int64   `json:"received_bytes"`
	Down      []float32 `json:"down_seconds"`
	RTT       []float32 `json:"rtt_seconds"`
	Goodput   []float32 `json:"goodput_bytes_per_second"`
}

// newest is for how long Newest gives the slots again in which an outage was noted afterwards.
const newest = 5 * time.Second

// Newest returns the two newest slots of so many seconds, and after an outage was noted the ones since its beginning.
func (r *Recorder) Newest(step int) Table {
	r.mu.Lock()
	last := 2
	if r.last.Sub(r.seen) < newest {
		last += int(r.last.Unix()-r.mended.Unix())/step + 1
	}
	r.mu.Unlock()
	return r.Table(step, last)
}

// Table returns the history in slots of so many seconds, of the last slots at most; 0: all. The newest slot is still
// growing. An unknown step gives the zero Table.
func (r *Recorder) Table(step, last int) Table {
	i := slices.Index(Steps(), step)
	if i < 0 {
		return Table{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.rings[i]
	t := Table{Step: step, Span: step * rings[i].size, Times: []int64{}, Series: []Series{}}
	var numbers []int64
	for _, n := range g.slots {
		if n > g.now-int64(rings[i].size) && (last == 0 || n > g.now-int64(last)) && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		t.Times = append(t.Times, n*rings[i].step)
	}
	for _, s := range r.order {
		x := Series{Name: s.name}
		x.grow(len(numbers))
		for at, n := range numbers {
			x.set(at, &s.slots[i][place(i, n)])
		}
		t.Series = append(t.Series, x)
	}
	slices.SortFunc(t.Series, func(a, b Series) int {
		link := func(s *Series) int { // links come before their jobs
			if s.Link {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(link(&a), link(&b)), cmp.Compare(a.Job, b.Job))
	})
	return t
}

// grow makes room for n values.
func (x *Series) grow(n int) {
	for _, column := range []*[]int64{&x.Raw, &x.Wire, &x.Delivered, &x.Sent, &x.Received} {
		*column = make([]int64, n)
	}
	for _, column := range []*[]float32{&x.Down, &x.RTT, &x.Goodput} {
		*column = make([]float32, n)
	}
}

func (x *Series) set(at int, s *slot) {
	x.Raw[at], x.Wire[at], x.Delivered[at], x.Sent[at], x.Received[at] = s.raw, s.wire, s.delivered, s.sent, s.received
	x.Down[at], x.RTT[at], x.Goodput[at] = s.down, s.rtt, s.goodput
}

// slot returns the values at a place; false: a column is too short, or a value is none that Table gives.
func (x *Series) slot(at int) (s slot, ok bool) {
	for _, column := range []struct {
		from []int64
		to   *int64
	}{{x.Raw, &s.raw}, {x.Wire, &s.wire}, {x.Delivered, &s.delivered}, {x.Sent, &s.sent}, {x.Received, &s.received}} {
		if at >= len(column.from) || column.from[at] < 0 {
			return s, false
		}
		*column.to = column.from[at]
	}
	for _, column := range []struct {
		from []float32
		to   *float32
	}{{x.Down, &s.down}, {x.RTT, &s.rtt}, {x.Goodput, &s.goodput}} {
		if at >= len(column.from) || !(column.from[at] >= 0) {
			return s, false
		}
		*column.to = column.from[at]
	}
	return s, true
}
