// Package ranktest has a test see the order in which locks are taken.
package ranktest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// A Watcher notes the locks that each goroutine holds, and the first that was taken out of order. It is safe for
// concurrent use.
type Watcher struct {
	// Often has goroutines be told apart in nanoseconds, for packages that take locks so often that the microseconds of
	// each lock would lengthen their tests.
	Often bool

	mu       sync.Mutex
	held     []hold                      // that goroutines hold, or wait for
	pairs    map[[2]rank.Rank]bool       // one taken under the other
	released map[uintptr]func(rank.Rank) // by goroutine
	wrong    string
}

// A hold is a lock that a goroutine holds, or waits for.
type hold struct {
	goroutine uintptr
	rank      rank.Rank
}

// Main runs a package's tests with all ranked locks watched by w, and fails them together if one was taken out of
// order.
func Main(m *testing.M, w *Watcher) {
	require.ManyAtOnce()
	rank.Watch = w.Watch
	code := m.Run()
	if wrong := w.Wrong(); wrong != "" {
		fmt.Println("FAIL: the order of locks (proxy/internal/rank) was violated:", wrong)
		code = 1
	}
	os.Exit(code)
}

// MainUnlessRace is Main without the race detector. With it no lock is watched, since a watched lock orders goroutines
// that share no lock, and so hides races; tests that need the watcher call SkipInRace.
func MainUnlessRace(m *testing.M, w *Watcher) {
	if require.Race {
		os.Exit(m.Run())
	}
	Main(m, w)
}

// SkipInRace skips a test where MainUnlessRace has no lock be watched.
func SkipInRace(t *testing.T) {
	t.Helper()
	if require.Race {
		t.Skip("locks are not watched with the race detector")
	}
}

// Watches fails the test for each lock, by its rank and its name, that w does not see taken and released as one of that
// rank.
func (w *Watcher) Watches(t *testing.T, locks map[rank.Rank]map[string]sync.Locker) {
	t.Helper()
	for r, named := range locks {
		for name, l := range named {
			if l.Lock(); !w.Held(r) {
				t.Errorf("%s is not watched as a lock of rank %d", name, r)
			}
			if l.Unlock(); w.Held(r) {
				t.Errorf("%s is held after its release", name)
			}
		}
	}
}

// Ordered fails the test if w has seen a lock taken out of order, or has not seen one of the second rank of a pair
// taken under one of the first: a test that claims something of a pair must have it happen.
func (w *Watcher) Ordered(t *testing.T, pairs [][2]rank.Rank) {
	t.Helper()
	if wrong := w.Wrong(); wrong != "" {
		t.Error(wrong)
	}
	for _, pair := range pairs {
		if !w.Saw(pair[0], pair[1]) {
			t.Errorf("no lock of rank %d was taken under one of rank %d: the test shows nothing of them", pair[1], pair[0])
		}
	}
}

// Unwatched has locks not be watched during a benchmark or a test that takes some many times a second: watching one
// costs microseconds. It must be called before the benchmark or the test begins anything, and no other may run beside
// it.
func Unwatched(b testing.TB) {
	watch := rank.Watch
	rank.Watch = nil
	b.Cleanup(func() { rank.Watch = watch })
}

// OnRelease has f called after each lock that the calling goroutine releases; nil: nothing is called any more. So a
// test has something happen between two sections of a function.
func (w *Watcher) OnRelease(f func(r rank.Rank)) {
	id := w.goroutine()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.released, id)
	if f == nil {
		return
	}
	if w.released == nil {
		w.released = map[uintptr]func(rank.Rank){}
	}
	w.released[id] = f
}

// Watch is for rank.Watch.
func (w *Watcher) Watch(r rank.Rank, locks bool) {
	id := w.goroutine()
	w.mu.Lock()
	w.note(id, r, locks)
	f := w.released[id]
	w.mu.Unlock()
	if f != nil && !locks {
		f(r)
	}
}

// note notes that a goroutine takes a lock, or has released it. mu is held.
func (w *Watcher) note(id uintptr, r rank.Rank, locks bool) {
	if !locks {
		if i := slices.Index(w.held, hold{id, r}); i >= 0 {
			w.held = slices.Delete(w.held, i, i+1)
		}
		return
	}
	for _, before := range w.held {
		if before.goroutine != id {
			continue
		}
		if w.pairs == nil {
			w.pairs = map[[2]rank.Rank]bool{}
		}
		w.pairs[[2]rank.Rank{before.rank, r}] = true
		if before.rank >= r && w.wrong == "" {
			stack := make([]byte, 4096)
			w.wrong = fmt.Sprintf("a lock of rank %d is taken under one of rank %d:\n%s", r, before.rank, stack[:runtime.Stack(stack, false)])
		}
	}
	w.held = append(w.held, hold{id, r})
}

// Wrong says which lock was taken out of order; "": none.
func (w *Watcher) Wrong() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

// Saw reports whether a lock of a rank was taken under one of another.
func (w *Watcher) Saw(under, taken rank.Rank) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pairs[[2]rank.Rank{under, taken}]
}

// Held reports whether the goroutine that calls it holds a lock of a rank.
func (w *Watcher) Held(r rank.Rank) bool {
	id := w.goroutine()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.held, hold{id, r})
}

// goroutine returns a number that only the calling goroutine has while it lives.
func (w *Watcher) goroutine() uintptr {
	if w.Often {
		return address()
	}
	return number()
}
