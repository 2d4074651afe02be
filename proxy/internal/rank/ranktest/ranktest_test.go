package ranktest

import (
	"slices"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// The watcher sees a lock that is taken out of order, and one that is taken twice.
func TestWatcher(t *testing.T) {
	for _, order := range [][]rank.Rank{{rank.Store, rank.Peer}, {rank.Peer, rank.Submit}, {rank.Peer, rank.Peer}, {rank.Rest, rank.Table},
		{rank.Submit, rank.Store, rank.Peer}} {
		var w Watcher
		for _, r := range order {
			w.Watch(r, true)
		}
		if w.Wrong() == "" {
			t.Errorf("locks in the order %v pass", order)
		}
	}
	var w Watcher
	for _, r := range []rank.Rank{rank.Table, rank.Rest, rank.Submit, rank.Peer, rank.Store} {
		w.Watch(r, true)
	}
	if !w.Held(rank.Rest) || !w.Saw(rank.Table, rank.Store) || w.Saw(rank.Store, rank.Table) {
		t.Error("locks that were taken are not seen")
	}
	for _, r := range []rank.Rank{rank.Peer, rank.Store, rank.Submit, rank.Rest, rank.Table} {
		w.Watch(r, false)
	}
	w.Watch(rank.Submit, true)
	if wrong := w.Wrong(); wrong != "" {
		t.Error(wrong)
	}
}

// A function of OnRelease is called for the locks that its goroutine releases, until there is none.
func TestOnRelease(t *testing.T) {
	var w Watcher
	take := func() {
		for _, r := range []rank.Rank{rank.Submit, rank.Peer} {
			w.Watch(r, true)
			w.Watch(r, false)
		}
	}
	var got []rank.Rank
	w.OnRelease(func(r rank.Rank) { got = append(got, r) })
	other := make(chan struct{})
	go func() { take(); close(other) }()
	<-other
	take()
	w.OnRelease(nil)
	take()
	if !slices.Equal(got, []rank.Rank{rank.Submit, rank.Peer}) {
		t.Errorf("locks of ranks %v were released", got)
	}
}

// Goroutines that live at the same time have different numbers, each the same one however deep its stack grows.
func TestGoroutine(t *testing.T) {
	for _, often := range []bool{false, true} {
		w := Watcher{Often: often}
		const n = 100
		var numbers [n]uintptr
		var all, begun sync.WaitGroup
		begun.Add(n)
		for i := range n {
			all.Go(func() {
				numbers[i] = w.goroutine()
				begun.Done()
				begun.Wait()
				if got := deep(&w, 100, [1 << 10]byte{}); got != numbers[i] {
					t.Errorf("often %v: goroutine %d is number %d when its stack has grown", often, numbers[i], got)
				}
			})
		}
		all.Wait()
		slices.Sort(numbers[:])
		if len(slices.Compact(numbers[:])) != n || numbers[0] == 0 {
			t.Errorf("often %v: %d goroutines share numbers", often, n)
		}
	}
}

// deep returns the goroutine's number below n calls.
func deep(w *Watcher, n int, stack [1 << 10]byte) uintptr {
	if n == 0 {
		return w.goroutine()
	}
	return deep(w, n-1, stack)
}
