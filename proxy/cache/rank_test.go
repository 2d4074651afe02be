package cache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A lockWatcher notes the locks that each goroutine holds, and the first that was taken out of order.
type lockWatcher struct {
	mu    sync.Mutex
	held  map[string][]rank // by goroutine
	pairs map[[2]rank]bool  // one taken under the other
	wrong string
}

// goroutine returns the number of the goroutine that calls it.
func goroutine() string {
	b := make([]byte, 64)
	return string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
}

func (w *lockWatcher) watch(r rank, locks bool) {
	id := goroutine()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !locks {
		if i := slices.Index(w.held[id], r); i >= 0 {
			w.held[id] = slices.Delete(w.held[id], i, i+1)
		}
		if len(w.held[id]) == 0 {
			delete(w.held, id)
		}
		return
	}
	for _, before := range w.held[id] {
		w.pairs[[2]rank{before, r}] = true
		if before >= r && w.wrong == "" {
			stack := make([]byte, 4096)
			w.wrong = fmt.Sprintf("a lock of rank %d is taken under one of rank %d:\n%s", r, before, stack[:runtime.Stack(stack, false)])
		}
	}
	w.held[id] = append(w.held[id], r)
}

var locks = lockWatcher{held: map[string][]rank{}, pairs: map[[2]rank]bool{}}

// All tests of this package run with their locks watched, and fail together if one was taken out of order.
func TestMain(m *testing.M) {
	watchLocks = locks.watch
	code := m.Run()
	if locks.wrong != "" {
		fmt.Println("FAIL: the lock order of doc.go was violated:", locks.wrong)
		code = 1
	}
	os.Exit(code)
}

// Both sides put, deliver, evict and code against each other's values at once: every lock is taken in the order
// of doc.go, and each value arrives as it was put.
func TestLockOrder(t *testing.T) {
	a, b := newSides(t, 64<<10)
	var all sync.WaitGroup
	for way, ends := range [][2]*side{{a, b}, {b, a}} {
		for worker := range uint64(3) {
			here, there := frame.Tag{Number: 10 + worker, Mine: way == 0}, frame.Tag{Number: 10 + worker, Mine: way == 1}
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(way), worker))
				for range 200 {
					w := weights(rand.New(rand.NewPCG(5, r.Uint64N(20))), 500) // both sides have the same
					w[r.IntN(len(w))]++
					ref, ok := ends[0].putOn(here, 1+r.Uint64N(40), w)
					if !ok {
						continue
					}
					if got, err := ends[1].takeOn(there, ref); err != nil || !bytes.Equal(got, w) {
						t.Error("other bytes arrived:", err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	a.peer.Ended(a.tag)
	b.peer.Ended(b.tag)
	locks.mu.Lock()
	defer locks.mu.Unlock()
	if locks.wrong != "" {
		t.Error(locks.wrong)
	}
	for _, pair := range [][2]rank{{rankSubmit, rankPeer}, {rankPeer, rankStore}, {rankSubmit, rankStore}} {
		if !locks.pairs[pair] {
			t.Errorf("no lock of rank %d was taken under one of rank %d: the test shows nothing of them", pair[1], pair[0])
		}
	}
}

// The watcher sees a lock that is taken out of order, and one that is taken twice.
func TestLockWatcher(t *testing.T) {
	for _, order := range [][]rank{{rankStore, rankPeer}, {rankPeer, rankSubmit}, {rankPeer, rankPeer}, {rankSubmit, rankStore, rankPeer}} {
		w := lockWatcher{held: map[string][]rank{}, pairs: map[[2]rank]bool{}}
		for _, r := range order {
			w.watch(r, true)
		}
		if w.wrong == "" {
			t.Errorf("locks in the order %v pass", order)
		}
	}
	w := lockWatcher{held: map[string][]rank{}, pairs: map[[2]rank]bool{}}
	for _, r := range []rank{rankSubmit, rankPeer, rankStore} {
		w.watch(r, true)
	}
	for _, r := range []rank{rankPeer, rankStore, rankSubmit} {
		w.watch(r, false)
	}
	w.watch(rankSubmit, true)
	if w.wrong != "" {
		t.Error(w.wrong)
	}
}
