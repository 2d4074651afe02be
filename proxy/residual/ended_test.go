package residual

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// A tensor with an origin keeps its residual for the next connection, under that connection's key; others end with
// theirs. As long as the first connection lives, a tensor of another one is another tensor.
func TestTensorsWithAnOriginOutliveTheirConnection(t *testing.T) {
	forgotten := 0
	s := New(1<<20, Events{Forgot: func(n int) { forgotten += n }})
	x := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000, Origin: 7}
	d := s.Dense("job", x, false)
	d.residual[0] = 1
	x.Key = 2
	if other := s.Dense("job", x, false); other == d {
		t.Error("two living connections share a tensor")
	} else {
		s.Drop(other)
	}
	s.End(d)
	x.Key = 3
	if other := s.Dense("another job", x, false); other == d {
		t.Error("another job has the tensor")
	}
	if s.Dense("job", x, false) != d || d.residual[0] != 1 || s.Dense("job", x, false) != d {
		t.Error("the next connection has another tensor")
	}
	if x.Key = 1; s.Dense("job", x, false) == d {
		t.Error("a third connection has the tensor, which the second one has")
	}
	before := forgotten
	s.End(d)
	if x.Key, x.Size = 4, 2000; s.Dense("job", x, false) == d || forgotten != before+1 {
		t.Errorf("a tensor of another size goes on with the residual, or %d are forgotten, want 1", forgotten-before)
	}
	plain := s.Dense("job", tensor.Tensor{Key: 9, DType: tensor.Float32, Size: 4000}, false)
	if s.End(plain); forgotten != before+2 {
		t.Errorf("%d tensors are forgotten, want 2: one without an origin ends with its connection", forgotten-before)
	}
	_, _, bytes := s.Held()
	s.End(plain)
	if _, _, now := s.Held(); now != bytes || forgotten != before+2 {
		t.Errorf("a tensor that is forgotten already ends: %d bytes are held, want %d", now, bytes)
	}
}

// Memory of ended connections makes room first, also if it was used last, and goes after a while.
func TestEndedTensorsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forgotten := 0
		s := New(2*denseCost(tensor.Float32, 4000), Events{Forgot: func(n int) { forgotten += n }})
		x := func(key, origin uint64) tensor.Tensor {
			return tensor.Tensor{Key: key, DType: tensor.Float32, Size: 4000, Origin: origin}
		}
		living := s.Dense("job", x(1, 0), false)
		s.End(s.Dense("job", x(2, 7), false))
		if dense, _, _ := s.Held(); dense != 2 || forgotten != 0 {
			t.Fatalf("%d tensors are remembered, %d forgotten; want 2 and 0", dense, forgotten)
		}
		s.End(s.Dense("job", x(3, 8), false))
		if s.Dense("job", x(1, 0), false) != living || forgotten != 1 || s.Short() {
			t.Errorf("%d tensors are forgotten, want the ended one; memory was short: %v", forgotten, s.Short())
		}
		time.Sleep(afterlife + time.Second)
		synctest.Wait()
		if dense, _, bytes := s.Held(); dense != 1 || bytes != living.cost() || forgotten != 2 {
			t.Errorf("after a while %d tensors in %d bytes are remembered, %d forgotten; want the living one, and 2", dense, bytes, forgotten)
		}
	})
}

// The memory of an ended connection is let go once it counts no more, long before its time is over: only what is held
// is reachable.
func TestEndedTensorsAreLetGo(t *testing.T) {
	const tensors, held = 50, 2
	s := New(held*denseCost(tensor.Float32, 4000), Events{})
	var reachable atomic.Int64
	for n := range uint64(tensors) {
		d := s.Dense("job", tensor.Tensor{Key: n + 1, DType: tensor.Float32, Size: 4000, Origin: n + 1}, false)
		reachable.Add(1)
		runtime.AddCleanup(d, func(n *atomic.Int64) { n.Add(-1) }, &reachable)
		s.End(d)
	}
	for began := time.Now(); reachable.Load() > held; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(began) > time.Minute {
			t.Fatalf("%d tensors are reachable, %d are held", reachable.Load(), held)
		}
	}
	runtime.KeepAlive(s)
}

// A tensor's time after its connection begins with its last connection's end, and of two that ended, the one that was
// used last goes on.
func TestLastEndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resumed := 0
		s := New(1<<20, Events{Resumed: func() { resumed++ }})
		x := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000, Origin: 7}
		d := s.Dense("job", x, false)
		s.End(d)
		time.Sleep(afterlife - time.Minute)
		x.Key = 2
		if s.Dense("job", x, false) != d || resumed != 1 {
			t.Fatalf("the tensor did not go on, %d did", resumed)
		}
		s.End(d)
		time.Sleep(2 * time.Minute) // past the end of the first time
		synctest.Wait()
		x.Key = 3
		if s.Dense("job", x, false) != d {
			t.Error("the tensor was forgotten at the end of an earlier time")
		}
		x.Key = 4
		newer := s.Dense("job", x, false) // while the connection of 3 hangs
		s.End(newer)
		s.End(d)
		x.Key = 5
		if got := s.Dense("job", x, false); got != newer {
			t.Errorf("the tensor goes on with the memory that was used earlier: %v", got == d)
		}
	})
}

// A tensor of another origin under the same key has nothing of the earlier one's residual.
func TestAnotherOriginIsAnotherTensor(t *testing.T) {
	s := New(1<<20, Events{})
	x := tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000, Origin: 7}
	d := s.Dense("job", x, false)
	x.Origin = 0 // not known of this message
	if s.Dense("job", x, false) != d {
		t.Error("a message whose origin is not known is of another tensor")
	}
	if x.Origin = 8; s.Dense("job", x, false) == d {
		t.Error("another bucket goes on with the residual")
	}
}
