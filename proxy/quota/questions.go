package quota

import (
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
)

// answerTime is the processor's time that a question costs the process that answers. It counts as the parser's.
const answerTime = 20 * time.Microsecond

// questions count how often the parser of the own app's bytes, which alone asks, has asked for the app's calls.
type questions struct {
	parser.Calls
	n atomic.Int64
}

// Of implements parser.Calls.
func (q *questions) Of(dst []parser.Call, tag uint32) (calls []parser.Call, answered bool) {
	q.n.Add(1)
	return q.Calls.Of(dst, tag)
}

// time returns the time of all answers so far; 0 for nil, where nobody sees the calls.
func (q *questions) time() time.Duration {
	if q == nil {
		return 0
	}
	return time.Duration(q.n.Load()) * answerTime
}
