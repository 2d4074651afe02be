package cache

import (
	"math"
	"sync"
)

// A sentinel watches, for each job, how far the values that the peer holds are from the app's own, where a lossy codec
// has coded the differences. The codec must follow the training: where the values run away from it the peer's replicas
// drift, and a loss of one value is no longer in the next difference. Then all values of the job travel exactly, from
// the next one of each block on, for driftValues values; after each further drift twice as many.
type sentinel struct {
	mu   sync.Mutex
	jobs map[string]*jobDrift
}

// A jobDrift is the state of one job.
type jobDrift struct {
	drifts int // how often it has drifted
}

// A gauge is the sentinel's part of one block. It belongs to the block's turn, but for exact and seen, which
// sentinel.mu guards.
type gauge struct {
	usual float64 // relative error, smoothed over a long time
	age   int     // values

	exact int // values that are still to travel exactly
	seen  int // drifts of the job that the block has heeded
}

// The limits of errors were measured on trainings: TestTrainingsAndTheSentinel, and docs/loss.md.
const (
	driftSample = 4096 // elements of a value that are compared, from the first
	driftMax    = 0.5  // of the relative error: the peer lacks half of the value
	driftTimes  = 8.0  // how many times as large as usual a relative error must be
	minDrift    = 0.05 // and how large at least
	driftAfter  = 32   // values until an error is usual
	driftValues = 32   // that travel exactly at first
	driftDouble = 5    // doublings of them, at most
)

// judges takes in the relative error of a value that has lost something, and reports whether the block drifts.
func (g *gauge) judges(e float64) bool {
	if math.IsNaN(e) || math.IsInf(e, 0) { // of a value of zeros
		return false
	}
	if g.age == 0 {
		g.usual = e
	}
	g.age++
	drifts := g.age >= driftAfter && (e > driftMax || e > minDrift && e > driftTimes*g.usual)
	g.usual += (e - g.usual) / 64
	if drifts {
		g.age = 0 // the values that follow are exact
	}
	return drifts
}

// drifted notes that a block of a job drifts. first: the block has heeded all that the job was told before.
func (s *sentinel) drifted(job string, g *gauge) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs == nil {
		s.jobs = map[string]*jobDrift{}
	}
	j := s.jobs[job]
	if j == nil {
		j = &jobDrift{}
		s.jobs[job] = j
	}
	if j.drifts != g.seen {
		return false
	}
	j.drifts++
	return true
}

// exact reports whether the next value of a block must travel exactly, and counts it.
func (s *sentinel) exact(job string, g *gauge) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[job]; j != nil && j.drifts != g.seen {
		g.seen = j.drifts
		g.exact = driftValues << min(j.drifts-1, driftDouble)
	}
	if g.exact == 0 {
		return false
	}
	g.exact--
	return true
}
