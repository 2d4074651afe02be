package proxy

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever comes finds something, however much those before him took; and a peer's connections leave something to others.
func TestBudgetLeavesSomething(t *testing.T) {
	const size, n = 1 << 20, 1 << 10
	b := newBudget(size)
	var peers [2]share
	connections := make([]share, 6)
	for i := range connections {
		connections[i].peer = &peers[i/5]
		for b.take(&connections[i], n) {
		}
		if connections[i].held == 0 {
			t.Errorf("connection %d got nothing", i)
		}
	}
	const most = size * peerShare / (peerShare + 1)
	if peers[0].held > most {
		t.Errorf("the connections of a peer hold %d bytes, at most %d are theirs", peers[0].held, most)
	}
	if connections[0].held < most/2-n {
		t.Errorf("the first got %d bytes of %d, want half", connections[0].held, most)
	}
	for i := range connections {
		b.give(&connections[i], int(connections[i].held))
	}
	if b.used != 0 || peers[0].held != 0 || peers[1].held != 0 {
		t.Errorf("%d bytes are used, %d and %d held, where all were given back", b.used, peers[0].held, peers[1].held)
	}
}

// Those of a peer that wait are served in their order, and nobody of that peer overtakes them; another peer's need not wait.
func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000)
		var near, far share
		holder, large, small, late, other := share{peer: &near}, share{peer: &near}, share{peer: &near}, share{peer: &near}, share{peer: &far}
		if !b.take(&holder, 750) {
			t.Fatal("nothing was to be had of a whole budget")
		}
		served := make(chan error, 2)
		go func() { served <- b.await(&large, 300, time.Minute, nil) }()
		synctest.Wait()
		go func() { served <- b.await(&small, 10, time.Minute, nil) }()
		synctest.Wait()
		b.give(&holder, 200)
		if b.take(&late, 1) {
			t.Error("one that came late has overtaken those of its peer that wait")
		}
		if !b.take(&other, 50) {
			t.Error("another peer's connection got nothing")
		}
		synctest.Wait()
		if len(served) > 0 {
			t.Error("one that needs little has overtaken one that came before it")
		}
		b.give(&holder, 550)
		synctest.Wait()
		if len(served) != 2 || <-served != nil || <-served != nil || large.held != 300 || small.held != 10 {
			t.Errorf("%d and %d bytes were given to those who waited for 300 and 10", large.held, small.held)
		}
		if len(b.waits) != 0 || !b.take(&late, 1) {
			t.Error("somebody still waits")
		}
	})
}

// What is not to be had ends in an error that says so: at once, in time, or with its connection; and those behind go on.
func TestBudgetWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		var peer share
		holder, first, second := share{peer: &peer}, share{peer: &peer}, share{peer: &peer}
		if err := b.await(&first, 81, time.Minute, nil); !errors.Is(err, errMemory) {
			t.Errorf("more than a peer may ever have: %v", err)
		}
		b.take(&holder, 70)
		gone, begin := make(chan struct{}), time.Now()
		errs := make(chan error, 2)
		go func() { errs <- b.await(&first, 50, time.Minute, gone) }()
		synctest.Wait()
		go func() { errs <- b.await(&second, 10, time.Hour, nil) }()
		if err := <-errs; !errors.Is(err, errMemory) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v, want an error after a minute", err, time.Since(begin))
		}
		if err := <-errs; err != nil || time.Since(begin) != time.Minute {
			t.Errorf("who stood behind: %v after %v", err, time.Since(begin))
		}
		go func() { errs <- b.await(&first, 50, time.Minute, gone) }()
		synctest.Wait()
		close(gone)
		if err := <-errs; !errors.Is(err, errMemory) || time.Since(begin) != time.Minute {
			t.Errorf("an ended connection waits on: %v after %v", err, time.Since(begin)-time.Minute)
		}
		if first.held != 0 || len(b.waits) != 0 {
			t.Errorf("%d bytes are held by who got none", first.held)
		}
	})
}

// What all connections may let wait, as both ends hold it, is within the budget; and spare has room for the least.
func TestAllowance(t *testing.T) {
	for _, size := range []int64{1 << 20, 256 << 20, 4 << 30} {
		b := newBudget(size)
		for connections := 1; connections <= 20_000; connections++ {
			n := b.allowance(connections)
			twice := int64(footprint(n) + footprint(n+n/64+maxHeader+1))
			if n > leastBlock && twice*int64(connections) > size*peerShare/(peerShare+1) {
				t.Fatalf("%d connections may have %d bytes wait each, of %d", connections, n, size)
			}
			if n == leastBlock && twice > spare {
				t.Fatalf("%d bytes are not spare", twice)
			}
		}
	}
	if n := newBudget(256 << 20).allowance(1); n < MaxBlock {
		t.Errorf("a connection alone may have only %d bytes wait", n)
	}
}

// Every size has its class, a quarter larger at most, and what was lent comes back to it.
func TestBuffersSizes(t *testing.T) {
	var p buffers
	last, sizes := 0, map[int]int{}
	for n := 1; n <= MaxBlock*2; n += 1 + n/100 {
		index, size := class(n)
		if size < n || n > 8 && 4*size > 5*n+16 || index < last {
			t.Fatalf("%d bytes are lent as %d, of class %d after %d", n, size, index, last)
		}
		if s, ok := sizes[index]; ok && s != size {
			t.Fatalf("class %d has slices of %d and of %d bytes", index, s, size)
		}
		if i, s := class(size); i != index || s != size {
			t.Fatalf("a slice of %d bytes of class %d comes back to %d", size, index, i)
		}
		last, sizes[index] = index, size
	}
	for _, n := range []int{0, 1, 9, 100, 4097, 1 << 20} {
		b := p.get(n)
		if len(b) != n || p.lent.Load() != int64(footprint(n)) {
			t.Errorf("%d bytes were lent, and %d counted, of %d", len(b), p.lent.Load(), n)
		}
		if p.put(b[:n/2]); p.lent.Load() != 0 {
			t.Errorf("%d bytes are lent after all came back", p.lent.Load())
		}
	}
}
