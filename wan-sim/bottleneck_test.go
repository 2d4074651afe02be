package wansim

import (
	"testing"
	"time"
)

// Two links behind one bottleneck get its rate between them, in the order in which packets come, and add their own
// delay.
func TestLinksShareABottleneck(t *testing.T) {
	shared := mustBottleneck(t, 1000, 0) // a byte each millisecond
	near := NewPath(Link{Delay: 10 * time.Millisecond, Shared: shared})
	far := NewPath(Link{Delay: 100 * time.Millisecond, Shared: shared})
	for i, x := range []struct {
		path *Path
		want time.Duration
	}{
		{near, 10*time.Millisecond + 10*time.Millisecond},
		{far, 20*time.Millisecond + 100*time.Millisecond},
		{near, 30*time.Millisecond + 10*time.Millisecond},
	} {
		at, ok := x.path.Admit(begin, 10)
		if got := at.Sub(begin); !ok || got != x.want {
			t.Errorf("packet %d arrives after %v, %v; want %v", i, got, ok, x.want)
		}
	}
}

// The queue of the bottleneck is one for all: packets that one link has put there leave no room for the other's
// packets.
func TestSharedQueueIsOne(t *testing.T) {
	shared := mustBottleneck(t, 1000, 100)
	greedy, modest := NewPath(Link{Shared: shared}), NewPath(Link{Shared: shared})
	for range 10 {
		if _, ok := greedy.Admit(begin, 10); !ok {
			t.Fatal("the queue is full too early")
		}
	}
	if _, ok := modest.Admit(begin, 10); ok {
		t.Error("a packet finds room in a full queue")
	}
	if _, ok := modest.Admit(begin.Add(10*time.Millisecond), 10); !ok {
		t.Error("a packet finds no room after one has left")
	}
}

// A link's own rate counts behind the bottleneck: packets queue there only once they have left it.
func TestLinkBehindABottleneck(t *testing.T) {
	p := NewPath(Link{Rate: 500, Queue: 20, Shared: mustBottleneck(t, 1000, 0)})
	// Packets of 10 bytes leave the bottleneck every 10 ms, the link every 20 ms: it falls behind until its queue is
	// full.
	var got []time.Duration
	for range 6 {
		if at, ok := p.Admit(begin, 10); ok {
			got = append(got, at.Sub(begin)/time.Millisecond)
		} else {
			got = append(got, -1)
		}
	}
	want := []time.Duration{30, 50, 70, -1, 90, -1}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("packets leave after %d ms, want %d", got, want)
		}
	}
}

// Nobody's bytes are lost or invented: together, links never get more than the bottleneck's rate.
func TestBottleneckBoundsTheSum(t *testing.T) {
	const rate, size, packets = 125_000, 1500, 400
	shared := mustBottleneck(t, rate, 30_000)
	paths := []*Path{NewPath(Link{Shared: shared}), NewPath(Link{Shared: shared}), NewPath(Link{Shared: shared})}
	arrived := make([]int, len(paths))
	var last time.Time
	for i := range packets {
		now := begin.Add(time.Duration(i) * 4 * time.Millisecond) // 1500 bytes in 4 ms for each: nine times the rate
		for j, p := range paths {
			if at, ok := p.Admit(now, size); ok {
				arrived[j]++
				last = at
			}
		}
	}
	sum := arrived[0] + arrived[1] + arrived[2]
	took := last.Sub(begin).Seconds()
	if got := float64(sum*size) / took; got > rate*1.0001 || got < rate*0.99 {
		t.Errorf("%d packets in %v s are %.0f bytes/s, want %d", sum, took, got, rate)
	}
}

func mustBottleneck(t *testing.T, rate int64, queue int) *Bottleneck {
	t.Helper()
	b, err := NewBottleneck(rate, queue)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBottleneckRefuses(t *testing.T) {
	for _, x := range []struct {
		rate  int64
		queue int
	}{{0, 0}, {-1, 0}, {1, -1}} {
		if _, err := NewBottleneck(x.rate, x.queue); err == nil {
			t.Errorf("rate %d, queue %d: no error", x.rate, x.queue)
		}
	}
	if _, err := NewWire(Link{Shared: mustBottleneck(t, 1, 0)}, Link{}); err == nil {
		t.Error("a Wire takes a shared bottleneck")
	}
}
