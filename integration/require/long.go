package require

import (
	"os"
	"sync/atomic"
	"testing"
)

// LongVariable is the environment variable that asks for tests that take long, by any value.
const LongVariable = "GRADPROXY_LONG"

var leftOut atomic.Int64

// Long skips t, which takes long (a whole training job, seconds of numbers), unless LongVariable asks for such tests. A
// run that declares tools present (Variable) runs them too: no test may be left out there.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(LongVariable) != "" || os.Getenv(Variable) != "" {
		return
	}
	leftOut.Add(1)
	t.Skipf("takes long: %s=1 runs it", LongVariable)
}

// LeftOut returns the number of tests of this process that Long has skipped.
func LeftOut() int { return int(leftOut.Load()) }

// OneGoroutine skips t, which computes much in one goroutine, under the race detector: that takes ten times as long,
// and could find misplaced pointers only. Code that uses unsafe needs a smaller test for that, which runs there.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("needs no race detector: it computes much in one goroutine")
	}
}
