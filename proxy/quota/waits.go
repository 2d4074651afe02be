package quota

import (
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
)

// answerTime is the processor's time that a question costs here and in the process that answers. It counts as the parser's.
const answerTime = 20 * time.Microsecond

// waits sum up how long the parser of the own app's bytes, which alone asks, has waited for answers about the app's calls. Another process gives them, on a busy
// machine when its turn comes, so that this is no time of the parser.
type waits struct {
	parser.Calls
	now func() time.Duration
	sum atomic.Int64 // nanoseconds
}

// Of implements parser.Calls.
func (w *waits) Of(dst []parser.Call, tag uint32) (calls []parser.Call, answered bool) {
	begin := w.now()
	calls, answered = w.Calls.Of(dst, tag)
	w.sum.Add(int64(max(0, w.now()-begin-answerTime)))
	return calls, answered
}

// waited returns the sum so far; 0 for nil, where nobody sees the calls.
func (w *waits) waited() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.sum.Load())
}
