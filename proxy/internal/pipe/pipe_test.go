package pipe

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// Items leave in the order in which they came, whatever order their work ends in.
func TestOrderIsKept(t *testing.T) {
	pool := NewPool(4)
	defer pool.Close()
	p := New(pool, 8)
	var got []int
	for i := range 2000 {
		var work func()
		if rand.IntN(3) > 0 {
			spin := rand.IntN(2000)
			work = func() {
				for range spin {
					runtime.Gosched()
				}
			}
		}
		if err := p.Do(work, func() error { got = append(got, i); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2000 {
		t.Fatalf("%d of 2000 items left the pipe", len(got))
	}
	for i, g := range got {
		if g != i {
			t.Fatalf("item %d left in place %d", g, i)
		}
	}
}

// A peer that does not read holds up its own connection only.
func TestOneStalledPipeDoesNotStallAnother(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	stalled, free := New(pool, 4), New(pool, 4)
	release := make(chan struct{})
	for range 4 {
		stalled.Do(func() {}, func() error { <-release; return nil })
	}
	for range 100 {
		if err := free.Do(func() {}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := free.Wait(); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := stalled.Wait(); err != nil {
		t.Fatal(err)
	}
}

// After the first error nothing is emitted, and the submitter learns of it.
func TestErrorEndsEmission(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	p := New(pool, 4)
	broken := errors.New("broken")
	var mu sync.Mutex
	emitted := 0
	for i := range 50 {
		p.Do(func() {}, func() error {
			mu.Lock()
			defer mu.Unlock()
			emitted++
			if i == 10 {
				return broken
			}
			return nil
		})
	}
	if err := p.Wait(); !errors.Is(err, broken) {
		t.Fatalf("Wait = %v, want the emitter's error", err)
	}
	if err := p.Do(nil, func() error { t.Error("emitted after an error"); return nil }); !errors.Is(err, broken) {
		t.Fatalf("Do = %v, want the emitter's error", err)
	}
	p.Wait()
	if emitted != 11 {
		t.Fatalf("%d items emitted, want 11", emitted)
	}
}

// Work that is submitted after the pool has closed is still done.
func TestClosedPoolLeavesNoWorkUndone(t *testing.T) {
	pool := NewPool(1)
	p := New(pool, 2)
	pool.Close()
	done := 0
	for range 20 {
		p.Do(func() { done++ }, func() error { return nil })
	}
	if p.Wait(); done != 20 {
		t.Fatalf("%d of 20 items were worked on", done)
	}
}
