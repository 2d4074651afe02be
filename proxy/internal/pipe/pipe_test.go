package pipe

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
)

// Items leave in the order in which they came, whatever order their work ends in.
func TestOrderIsKept(t *testing.T) {
	pool := NewPool(4)
	defer pool.Close()
	p := New(pool, 8, nil)
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
		if err := p.Do(Item{Work: work, Emit: func() error { got = append(got, i); return nil }}); err != nil {
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
	stalled, free := New(pool, 4, nil), New(pool, 4, nil)
	release := make(chan struct{})
	for range 4 {
		stalled.Do(Item{Work: func() {}, Emit: func() error { <-release; return nil }})
	}
	for range 100 {
		if err := free.Do(Item{Work: func() {}, Emit: func() error { return nil }}); err != nil {
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

// After the first error nothing is emitted, but everything is worked on and given back; and the submitter learns of it,
// wherever it waits.
func TestErrorEndsEmission(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	broken := errors.New("broken")
	told := 0
	p := New(pool, 4, func(err error) {
		if told++; !errors.Is(err, broken) {
			t.Errorf("told of %v", err)
		}
	})
	emitted, given := 0, 0
	for i := range 50 {
		p.Do(Item{
			Work: func() {},
			Emit: func() error {
				emitted++
				if i == 10 {
					return broken
				}
				return nil
			},
			Done: func() { given++ },
		})
	}
	if err := p.Wait(); !errors.Is(err, broken) {
		t.Fatalf("Wait = %v, want the emitter's error", err)
	}
	if done, err := p.Try(func() error { t.Error("emitted after an error"); return nil }); done || !errors.Is(err, broken) {
		t.Fatalf("Try = %v, %v, want the emitter's error", done, err)
	}
	if emitted != 11 || given != 50 || told != 1 {
		t.Fatalf("%d emitted, %d given back, told %d times; want 11, 50, 1", emitted, given, told)
	}
}

// Work that is submitted after the pool has closed is still done.
func TestClosedPoolLeavesNoWorkUndone(t *testing.T) {
	pool := NewPool(1)
	p := New(pool, 2, nil)
	pool.Close()
	done := 0
	for range 20 {
		p.Do(Item{Work: func() { done++ }})
	}
	if p.Wait(); done != 20 {
		t.Fatalf("%d of 20 items were worked on", done)
	}
}
