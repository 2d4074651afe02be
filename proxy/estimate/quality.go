package estimate

import "time"

// A Quality sums up the effects of an Estimator's codecs on the values of one role.
type Quality struct {
	Coding time.Duration // of one core, lossless blocks included

	// Of blocks that may have lost something one in eight is measured:
	Measured int     // blocks
	Error    float64 // sum over them: norm of the loss over the norm of the value that was encoded, which feedback is part of
	Residual float64 // sum over them: norm of the residual over the norm of the value; differences to the receiver's value have none
	Behind   int     // blocks that travelled exactly since receivers were too far behind

	codec string // of the last block that was encoded
	mixed bool   // there was another before
}

// Only reports whether all blocks were encoded by one codec, by its text. It is true if there were none.
func (q *Quality) Only(codec string) bool { return q.codec == "" || q.codec == codec && !q.mixed }

// Blocks reports whether any block was encoded.
func (q *Quality) Blocks() bool { return q.codec != "" }

// Add adds the figures of o.
func (q *Quality) Add(o *Quality) {
	q.Coding += o.Coding
	q.Measured += o.Measured
	q.Error += o.Error
	q.Residual += o.Residual
	q.Behind += o.Behind
}

// MeanError returns the mean relative error of the blocks that were measured.
func (q *Quality) MeanError() float64 { return q.Error / float64(max(1, q.Measured)) }

// MeanResidual returns their mean residual, relative to the value.
func (q *Quality) MeanResidual() float64 { return q.Residual / float64(max(1, q.Measured)) }
