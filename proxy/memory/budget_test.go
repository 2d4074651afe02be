package memory

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The bounds of package frame.
const (
	maxBlock   = 16 << 20
	headerSize = 16
)

// A connection that comes later finds something, however much the earlier ones took; and a peer's connections leave
// something to others.
func TestBudgetLeavesSomething(t *testing.T) {
	const size, n = 1 << 20, 1 << 10
	b := NewBudget(size)
	var peers [2]Share
	connections := make([]Share, 6)
	for i := range connections {
		connections[i].Peer = &peers[i/5]
		for b.Take(&connections[i], n) {
		}
		if connections[i].held == 0 {
			t.Errorf("connection %d got nothing", i)
		}
	}
	const limit = size * peerShare / (peerShare + 1)
	if peers[0].held > limit {
		t.Errorf("the connections of a peer hold %d bytes, at most %d are theirs", peers[0].held, limit)
	}
	if connections[0].held < limit/2-n {
		t.Errorf("the first got %d bytes of %d, want half", connections[0].held, limit)
	}
	for i := range connections {
		b.Give(&connections[i], int(connections[i].held))
	}
	if b.used != 0 || peers[0].held != 0 || peers[1].held != 0 {
		t.Errorf("%d bytes are used, %d and %d held, where all were given back", b.used, peers[0].held, peers[1].held)
	}
}

// Connections of a peer that wait are served in their order, and none of that peer overtakes them; connections of
// another peer need not wait.
func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1000)
		var near, far Share
		holder, large, small, late, other := Share{Peer: &near}, Share{Peer: &near}, Share{Peer: &near}, Share{Peer: &near}, Share{Peer: &far}
		if !b.Take(&holder, 750) {
			t.Fatal("nothing was to be had of a whole budget")
		}
		served := make(chan error, 2)
		go func() { served <- b.Await(&large, 300, time.Minute, nil) }()
		synctest.Wait()
		go func() { served <- b.Await(&small, 10, time.Minute, nil) }()
		synctest.Wait()
		b.Give(&holder, 200)
		if b.Take(&late, 1) {
			t.Error("one that came late has overtaken those of its peer that wait")
		}
		if !b.Take(&other, 50) {
			t.Error("another peer's connection got nothing")
		}
		synctest.Wait()
		if len(served) > 0 {
			t.Error("one that needs little has overtaken one that came before it")
		}
		b.Give(&holder, 550)
		synctest.Wait()
		if len(served) != 2 || <-served != nil || <-served != nil || large.held != 300 || small.held != 10 {
			t.Errorf("%d and %d bytes were given to the connections that waited for 300 and 10", large.held, small.held)
		}
		if len(b.waits) != 0 || !b.Take(&late, 1) {
			t.Error("somebody still waits")
		}
	})
}

// A wait in vain ends in an error that says so: at once, in time, or with its connection; and the connections behind go
// on.
func TestBudgetWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		var peer Share
		holder, first, second := Share{Peer: &peer}, Share{Peer: &peer}, Share{Peer: &peer}
		if err := b.Await(&first, 81, time.Minute, nil); !errors.Is(err, ErrMemory) {
			t.Errorf("more than a peer may ever have: %v", err)
		}
		b.Take(&holder, 70)
		gone, begin := make(chan struct{}), time.Now()
		errs, behind := make(chan error, 1), make(chan error, 1)
		go func() { errs <- b.Await(&first, 50, time.Minute, gone) }()
		synctest.Wait()
		go func() { behind <- b.Await(&second, 10, time.Hour, nil) }()
		if err := <-errs; !errors.Is(err, ErrMemory) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v, want an error after a minute", err, time.Since(begin))
		}
		if err := <-behind; err != nil || time.Since(begin) != time.Minute {
			t.Errorf("the connection behind: %v after %v", err, time.Since(begin))
		}
		go func() { errs <- b.Await(&first, 50, time.Minute, gone) }()
		synctest.Wait()
		close(gone)
		if err := <-errs; !errors.Is(err, ErrMemory) || time.Since(begin) != time.Minute {
			t.Errorf("an ended connection waits on: %v after %v", err, time.Since(begin)-time.Minute)
		}
		if first.held != 0 || len(b.waits) != 0 {
			t.Errorf("%d bytes are held by a connection that got none", first.held)
		}
	})
}

// The blocks that all connections may let wait, as both ends hold them, are within the budget; and Spare has room for
// the smallest.
func TestAllowance(t *testing.T) {
	for _, size := range []int64{1 << 20, 256 << 20, 4 << 30} {
		b := NewBudget(size)
		for connections := 1; connections <= 20_000; connections++ {
			n := b.Allowance(connections, maxBlock)
			twice := int64(Footprint(n) + Footprint(n+n/64+headerSize+1))
			if n > MinBlock && twice*int64(connections) > size*peerShare/(peerShare+1) {
				t.Fatalf("%d connections may have %d bytes wait each, of %d", connections, n, size)
			}
			if n == MinBlock && twice > Spare {
				t.Fatalf("%d bytes are not spare", twice)
			}
		}
	}
	if n := NewBudget(256<<20).Allowance(1, maxBlock); n < maxBlock {
		t.Errorf("a connection alone may have only %d bytes wait", n)
	}
}

// Every size has its class, a quarter larger at most, and a slice that is put back comes back to it.
func TestPoolSizes(t *testing.T) {
	var p Pool
	last, sizes := 0, map[int]int{}
	for n := 1; n <= maxBlock*2; n += 1 + n/100 {
		index, size := class(n)
		if size < n || n > 8 && 4*size > 5*n+16 || index < last {
			t.Fatalf("%d bytes are given as %d, of class %d after %d", n, size, index, last)
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
		b := p.Get(n)
		if len(b) != n || p.InUse() != int64(Footprint(n)) {
			t.Errorf("%d bytes were given, and %d counted, of %d", len(b), p.InUse(), n)
		}
		if p.Put(b[:n/2]); p.InUse() != 0 {
			t.Errorf("%d bytes are in use after all came back", p.InUse())
		}
	}
}
