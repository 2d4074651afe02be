package quota

import (
	"runtime"
	"time"

	"github.com/gradproxy/gradproxy/parser"
)

// answerTime is the maximum time of the processor that a question costs the process that answers. It counts as the
// parser's, as far as the parser has waited: most calls are known without a question.
const answerTime = 20 * time.Microsecond

// questions pass on the Calls of a connection to the parser of the own app's bytes: no other parser asks.
type questions struct {
	parser.Calls
	watch *stopwatch           // of that parser, which runs on the goroutine that asks
	now   func() time.Duration // a clock that only goes forward
}

// Of implements parser.Calls. A goroutine that waits for an answer keeps no thread, and the wait is no time of the
// parser.
func (q *questions) Of(dst []parser.Call, tag uint32) (calls []parser.Call, answered bool) {
	if w := q.watch; w.runs {
		w.stop()
		began := q.now()
		defer func() {
			w.sum += min(q.now()-began, answerTime)
			w.start()
		}()
	}
	return q.Calls.Of(dst, tag)
}

// A stopwatch sums up the processor time of a goroutine, which keeps its thread meanwhile.
type stopwatch struct {
	worked func() time.Duration // the processor time of the calling thread
	runs   bool
	begin  time.Duration
	sum    time.Duration
}

func (w *stopwatch) start() {
	runtime.LockOSThread()
	w.runs, w.begin = true, w.worked()
}

func (w *stopwatch) stop() {
	w.runs, w.sum = false, w.sum+w.worked()-w.begin
	runtime.UnlockOSThread()
}
