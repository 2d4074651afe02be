package residual

import "sync/atomic"

// A Job says whether the user's word on the sums of a job still holds. It lives as long as connections of the job use
// it.
type Job struct {
	name    string
	users   int // guarded by ledger.mu
	doubted atomic.Bool
}

// Doubt notes that one of the job's sums is no gradient, and reports whether it is the first that was found.
func (j *Job) Doubt() (first bool) { return !j.doubted.Swap(true) }

// Doubted reports whether one of the job's sums was found to be no gradient.
func (j *Job) Doubted() bool { return j.doubted.Load() }
