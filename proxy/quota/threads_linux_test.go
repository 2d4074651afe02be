package quota

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A pendingCalls is asked, and answers when all may go on.
type pendingCalls struct {
	parser.Calls
	asked *atomic.Int32
	gone  chan struct{}
}

func (c *pendingCalls) Of(dst []parser.Call, _ uint32) ([]parser.Call, bool) {
	c.asked.Add(1)
	<-c.gone
	return dst, true
}

func threads(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "\nThreads:")
	n, err := strconv.Atoi(strings.TrimSpace(after[:strings.IndexByte(after, '\n')]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Parsers that wait for answers about calls keep no threads, however many connections there are.
func TestWaitingParsersKeepNoThreads(t *testing.T) {
	var clock time.Duration
	const parsers = 200
	c := &pendingCalls{asked: new(atomic.Int32), gone: make(chan struct{})}
	before := threads(t)
	var all sync.WaitGroup
	for range parsers {
		a := &asking{hog{clock: new(time.Duration)}, nil}
		m, _ := meters(newQuota(), memory.NewBudget(64<<20), &clock, a, &hog{clock: &clock})
		a.calls = &questions{Calls: c, watch: m.watch, now: sinceStart}
		m.watch.worked, m.close = threadTime, timedClosely
		all.Go(func() {
			if _, err := m.Next(make([]byte, timedAlways)); err != nil {
				t.Error(err)
			}
		})
	}
	for c.asked.Load() < parsers {
		time.Sleep(time.Millisecond)
	}
	if n := threads(t) - before; n > parsers/4 {
		t.Errorf("%d more threads for %d parsers that wait", n, parsers)
	}
	close(c.gone)
	all.Wait()
}
