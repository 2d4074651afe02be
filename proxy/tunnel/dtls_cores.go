package tunnel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Encryption takes half of the time that the records of a carrier take of a core, or more. A batch of records that is
// large enough is cut into units. The goroutine that has the batch and workers that are idle each take the next unit,
// and that goroutine sends the units, or hands them on, in order, as soon as the first of them are done. It never waits
// for a worker to wake, which takes longer than a unit does: a worker that comes late finds no unit left.
const (
	// unitBytes is how many bytes of records a unit has, if a batch does not end before: half of a call. AES-GCM takes
	// 6 µs for them.
	unitBytes = 32_000
	maxUnits  = 24 // in a batch

	// minSpread is how many units a batch has that is worth another core.
	minSpread = 3

	maxSpin = 20 * time.Microsecond // for which a goroutine looks whether a worker is done, before it sleeps

	// For trialTime of work batches are worked on alone, then for as long by all cores. All cores go on if a unit takes
	// less than paysBelow hundredths of the time then. The outcome holds for holdTime. One against them holds twice as
	// long each further time in a row, maxHold at most.
	trialTime = 50 * time.Millisecond
	paysBelow = 85
	holdTime  = 2 * time.Second
	maxHold   = 16 * time.Second
	// A worker that is waited for longer than maxWait has lost its core to another process: that decides at once.
	maxWait = time.Millisecond
)

// spreadWorkers returns the channel on which the workers of the process take batches; nil: there is one core. They are
// started once, belong to no connection, and hold no lock of a rank.
var spreadWorkers = sync.OnceValue(func() chan *spread {
	n := runtime.GOMAXPROCS(0) - 1
	if n == 0 {
		return nil
	}
	asked := make(chan *spread)
	for range n {
		go takeSpreads(asked)
	}
	return asked
})

func takeSpreads(asked chan *spread) {
	for s := range asked {
		s.help()
	}
}

// A spread is the work on one batch. The goroutine that has the batch calls offer and finish, and end at last.
type spread struct {
	asked chan *spread
	work  func(unit int) // is called once for each unit, concurrently
	ready atomic.Int32   // how many units may be taken
	taken atomic.Int32   // how many are taken
	slow  bool           // a worker was waited for longer than maxWait
	units [maxUnits]struct {
		done atomic.Bool
		mu   sync.Mutex // held until then. It has no rank: no lock is taken under it, and workers hold no other
	}
}

// newSpread returns the work on a batch, none of whose units is ready.
func newSpread(asked chan *spread, work func(unit int)) *spread {
	s := &spread{asked: asked, work: work}
	for i := range s.units {
		s.units[i].mu.Lock()
	}
	return s
}

// offer lets the units below n be taken. The first offer asks a worker, too.
func (s *spread) offer(n int) {
	if s.ready.Swap(int32(n)) == 0 {
		s.ask()
	}
}

// ask has a worker come if one waits. It does not wait.
func (s *spread) ask() {
	select {
	case s.asked <- s:
		// The runtime leaves the goroutine that has become ready last to this core, which is busy, for 50 µs: runqgrab
		// in runtime/proc.go. So that is another one.
		go func() {}()
	default:
	}
}

// take takes the next unit; -1: none is ready.
func (s *spread) take() int {
	for {
		unit := s.taken.Load()
		if unit >= s.ready.Load() {
			return -1
		}
		if s.taken.CompareAndSwap(unit, unit+1) {
			return int(unit)
		}
	}
}

// do does the work on a unit that was taken.
func (s *spread) do(unit int) {
	s.work(unit)
	s.units[unit].done.Store(true)
	s.units[unit].mu.Unlock()
}

// help works on units until none is ready, and returns how many it has done. A worker calls it.
func (s *spread) help() (units int) {
	for unit := s.take(); unit >= 0; unit = s.take() {
		units++
		if s.ready.Load()-s.taken.Load() >= 2*minSpread { // there is enough for a further worker
			s.ask()
		}
		s.do(unit)
	}
	return units
}

// finish returns when the work on a unit that was ready is done.
func (s *spread) finish(unit int) {
	u := &s.units[unit]
	for !u.done.Load() {
		if next := s.take(); next >= 0 {
			s.do(next)
			continue
		}
		began := time.Now()
		for !u.done.Load() && time.Since(began) < maxSpin { // to sleep and to wake takes longer
			runtime.Gosched()
		}
		u.mu.Lock()
		u.mu.Unlock()
		s.slow = s.slow || time.Since(began) > maxWait
	}
}

// end returns when nobody works on units any more, and nobody will.
func (s *spread) end() {
	for unit := range min(s.taken.Swap(maxUnits), maxUnits) {
		s.finish(int(unit))
	}
}

// A spreadPolicy says for which batches workers are asked: while that makes batches faster. Where other goroutines or
// other processes have the cores, it makes them slower.
type spreadPolicy struct {
	workers chan *spread // nil: of the process

	state         spreadState
	alone, spread spreadPace // as measured last
	pays          bool       // the outcome,
	hold          time.Duration
	until         time.Time // that holds until then
}

// A spreadState is the state of a spreadPolicy.
type spreadState uint8

const (
	spreadTriesAlone spreadState = iota // batches are worked on alone,
	spreadTriesAll                      // or by all cores, to see how fast that is,
	spreadHolds                         // or as it was faster
)

// A spreadPace is how long the work on units has taken, with all that belongs to their batches.
type spreadPace struct {
	units int
	took  time.Duration
}

// begin returns the workers to ask for a batch that has enough units; nil: none.
func (p *spreadPolicy) begin(now time.Time) chan *spread {
	workers := p.workers
	if workers == nil {
		workers = spreadWorkers()
	}
	if p.state == spreadHolds && now.After(p.until) {
		p.state, p.alone, p.spread = spreadTriesAlone, spreadPace{}, spreadPace{}
	}
	if p.state == spreadTriesAll || p.state == spreadHolds && p.pays {
		return workers
	}
	return nil
}

// learn notes how long a batch has taken for which begin was called. slow: the batch's spread says so.
func (p *spreadPolicy) learn(now time.Time, units int, took time.Duration, slow bool) {
	switch {
	case slow:
		p.decide(now, false)
	case p.state == spreadTriesAlone:
		if p.alone.add(units, took) {
			p.state = spreadTriesAll
		}
	case p.state == spreadTriesAll:
		if p.spread.add(units, took) {
			all, one := float64(p.spread.took)/float64(p.spread.units), float64(p.alone.took)/float64(p.alone.units)
			p.decide(now, 100*all < paysBelow*one)
		}
	}
}

// decide has an outcome hold from now on.
func (p *spreadPolicy) decide(now time.Time, pays bool) {
	if p.hold = min(2*p.hold, maxHold); pays || p.hold == 0 {
		p.hold = holdTime
	}
	p.state, p.pays, p.until = spreadHolds, pays, now.Add(p.hold)
}

// add notes a batch, and reports whether that is enough.
func (p *spreadPace) add(units int, took time.Duration) bool {
	p.units += units
	p.took += took
	return p.took >= trialTime
}
