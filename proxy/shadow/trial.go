package shadow

import (
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Trial codes values with one candidate, as a proxy would send them. One goroutine uses it and its Lines.
type Trial interface {
	// Line returns a new Line for the values that one connection sends to a peer. has names the codecs that the peer
	// has; nil: it has all.
	Line(f policy.Flow, peer string, has []string) Line
	// Short reports whether memory was short at any time, so that a residual that should have waited for later values
	// of its tensor may be lost.
	Short() bool
	// Limit returns the residual ratio beyond which the guard has blocks of the candidate travel exactly.
	Limit() float64
	// Close ends the Trial and its Lines.
	Close()
}

// A Line is one connection's part of a Trial.
type Line interface {
	// Send codes a value of t, whose bytes came in runs, and returns its measure.
	Send(t tensor.Tensor, value []byte, runs []Run) (Measure, error)
	// Close ends the Line: no more values come.
	Close()
}

// A Run is consecutive bytes of a value. Hold is how many bytes the app writes from its begin on without waiting for an
// answer, as the parser said ([tensor.Tensor].Hold).
type Run struct{ Len, Hold int }
