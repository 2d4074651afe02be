package datagram

import (
	"errors"
	"testing"
	"time"
)

// TestMarking: packets leave as ECT0 for as long as the counts agree with the packets that have left, and no longer.
func TestMarking(t *testing.T) {
	type step = func(m *marking)
	leave := func(n int) step {
		return func(m *marking) {
			for range n {
				if m.marks() {
					m.left(time.Second, 300*time.Millisecond)
				}
			}
		}
	}
	arrive := func(n uint64) step { return func(m *marking) { m.arrived(n) } }
	drop := func(n int) step {
		return func(m *marking) {
			for range n {
				m.dropped()
			}
		}
	}
	tell := func(ect0, ect1, ce uint64) step { return func(m *marking) { m.tell(markCount{ect0, ect1, ce}) } }
	late := func(m *marking) { m.left(2*time.Second, 300*time.Millisecond) }
	moved := func(m *marking) { m.moved() }
	for name, c := range map[string]struct {
		steps []step
		want  markState
	}{
		"at first":                {nil, marksTested},
		"ten have left":           {[]step{leave(12)}, marksUnknown},
		"few have left, long ago": {[]step{leave(1), late}, marksUnknown},
		"all came":                {[]step{leave(10), arrive(10), tell(10, 0, 0)}, marksCapable},
		"some are on their way":   {[]step{leave(10), arrive(4), tell(4, 0, 0)}, marksUnknown},
		"some were lost":          {[]step{leave(10), arrive(4), drop(6), tell(4, 0, 0)}, marksCapable},
		"all were lost":           {[]step{leave(10), drop(10)}, marksFailed},
		"some met congestion":     {[]step{leave(10), arrive(10), tell(9, 0, 1)}, marksCapable},
		"all met it":              {[]step{leave(10), arrive(10), tell(0, 0, 10)}, marksFailed},
		"they were wiped out":     {[]step{leave(10), arrive(10), tell(9, 0, 0)}, marksFailed},
		"they became ECT1":        {[]step{leave(10), arrive(10), tell(9, 1, 0)}, marksFailed},
		"more than have left":     {[]step{leave(10), arrive(10), tell(11, 0, 0)}, marksFailed},
		"nobody tells":            {[]step{leave(10), arrive(10)}, marksUnknown},
		"nobody tells any more":   {[]step{leave(10), arrive(10), tell(10, 0, 0), leave(300), arrive(300)}, marksFailed},
		"wiped out later":         {[]step{leave(10), arrive(10), tell(10, 0, 0), leave(5), arrive(5), tell(14, 0, 0)}, marksFailed},
		"the count goes back":     {[]step{leave(10), arrive(10), tell(9, 0, 1), leave(5), tell(10, 0, 0)}, marksFailed},
		"the count runs ahead of acks": {[]step{leave(10), arrive(10), tell(10, 0, 0), leave(5), arrive(2), tell(15, 0, 0), arrive(3), leave(1), arrive(1), tell(16, 0, 0)},
			marksCapable},
		"failed for good":    {[]step{leave(10), arrive(10), tell(0, 0, 0), tell(10, 0, 0)}, marksFailed},
		"another path":       {[]step{leave(10), arrive(10), tell(0, 0, 0), moved}, marksTested},
		"it carries them":    {[]step{leave(10), arrive(10), tell(0, 0, 0), moved, leave(10), arrive(10), tell(10, 0, 0)}, marksCapable},
		"it does not either": {[]step{leave(10), arrive(10), tell(10, 0, 0), moved, leave(10), arrive(10), tell(12, 0, 0)}, marksFailed},
	} {
		m := marking{}
		for _, s := range c.steps {
			s(&m)
		}
		if m.state != c.want {
			t.Errorf("%s: state %d, want %d: %+v", name, m.state, c.want, m)
		}
	}
}

// marked returns how an engine's bulk is over a path, once the engine has had time to learn of it.
func marked(t *testing.T, p path) (rate float64, s State) {
	w := newWorld(t, 3)
	back := path{delay: p.delay}
	a, b := w.pair(&p, &back, 32<<20)
	got := 0
	b.taken = func(r []byte) { got += len(r) }
	a.bulk(64 << 10)
	never := func() bool { return false }
	w.run(3*time.Second, never)
	got = 0
	w.run(15*time.Second, never)
	return float64(got) / 12 / p.rate, a.State()
}

// TestMarksSpareLosses: where a router marks datagrams before its queue is full, an engine heeds that: as much arrives,
// and less is lost.
func TestMarksSpareLosses(t *testing.T) {
	p := path{rate: 5e6, delay: 20 * time.Millisecond, queue: 200e3}
	plain, without := marked(t, p)
	p.mark = 100e3
	rate, with := marked(t, p)
	t.Logf("without marks %.3f of the rate arrive and %d bytes are lost, with marks %.3f and %d, of which %d packets are marked", plain, without.Lost, rate, with.Lost, with.Marked)
	if !with.Marks || with.Marked == 0 || without.Marked != 0 {
		t.Errorf("marks are not used: %+v", with)
	}
	if rate < plain-0.02 || with.Lost > without.Lost/2 {
		t.Error("marks cost rate, or spare no losses")
	}
}

// TestMarksSurvive: bulk arrives over paths that treat marks badly, and packets leave there without them.
func TestMarksSurvive(t *testing.T) {
	n := 0
	plain, _ := marked(t, path{rate: 2e6, delay: 10 * time.Millisecond, queue: 100e3, loss: 0.01})
	for name, c := range map[string]struct {
		marks func(Mark) (Mark, bool) // the mark with which a datagram comes; false: the datagram is lost
		want  bool
	}{
		"as they are":       {func(m Mark) (Mark, bool) { return m, true }, true},
		"wiped out":         {func(Mark) (Mark, bool) { return Unmarkable, true }, false},
		"changed":           {func(m Mark) (Mark, bool) { return m / 2, true }, false},
		"all congested":     {func(m Mark) (Mark, bool) { return m | m/2, true }, false},
		"lost":              {func(m Mark) (Mark, bool) { return m, m == Unmarkable }, false},
		"a tenth wiped out": {func(m Mark) (Mark, bool) { n++; return m * min(Mark(n%10), 1), true }, false},
	} {
		rate, s := marked(t, path{rate: 2e6, delay: 10 * time.Millisecond, queue: 100e3, loss: 0.01, marks: c.marks})
		if s.Marks != c.want {
			t.Errorf("%s: packets leave with marks: %v", name, s.Marks)
		}
		if rate < plain-0.02 {
			t.Errorf("%s: %.3f of the rate arrive, and %.3f where marks do nothing", name, rate, plain)
		}
	}
}

// TestMarksAfterAMove: whether a path carries marks is found out anew where a connection goes on over another one.
func TestMarksAfterAMove(t *testing.T) {
	w := newWorld(t, 3)
	there, back := path{rate: 2e6, delay: 10 * time.Millisecond, queue: 100e3}, path{delay: 10 * time.Millisecond}
	a, b := w.pair(&there, &back, 32<<20)
	a.bulk(64 << 10)
	never := func() bool { return false }
	for i, carries := range []bool{true, false, true} {
		there.marks = nil
		if !carries {
			there.marks = func(Mark) (Mark, bool) { return Unmarkable, true }
		}
		if i > 0 {
			a.Moved(w.now, true)
			b.Moved(w.now, true)
			w.at(w.now, a.pump)
		}
		w.run(w.now+3*time.Second, never)
		if s := a.State(); s.Marks != carries {
			t.Errorf("on path %d packets leave with marks: %v", i, s.Marks)
		}
	}
}

// TestMarksAfterANewPort: the test of a path does not wait for packets that a change of the port has lost.
func TestMarksAfterANewPort(t *testing.T) {
	w := newWorld(t, 3)
	there, back := path{rate: 2e6, delay: 10 * time.Millisecond, queue: 100e3}, path{delay: 10 * time.Millisecond}
	a, _ := w.pair(&there, &back, 32<<20)
	a.bulk(64 << 10)
	never := func() bool { return false }
	w.run(w.now+15*time.Millisecond, never)
	there.loss = 1 // the first packets that leave with marks are lost
	w.run(w.now+20*time.Millisecond, never)
	if a.marking.path == 0 || a.marking.acked > 0 {
		t.Fatalf("the test is not under way: %+v", a.marking)
	}
	there.loss = 0
	a.Moved(w.now, false)
	w.at(w.now, a.pump)
	w.run(w.now+3*time.Second, never)
	if !a.State().Marks {
		t.Errorf("packets leave without marks: %+v", a.marking)
	}
}

// TestAcknowledgementsInAdvance: an end that acknowledges packets before they have come, so that more is sent than its
// path carries, is found out.
func TestAcknowledgementsInAdvance(t *testing.T) {
	e, now := hostile(32 << 20)
	limit := ack{limit: 1 << 60}
	for number := uint64(0); number < 4*maxSkip; number++ {
		for e.Unsent() < 64<<10 {
			e.Queue(make([]byte, 64<<10), Free)
		}
		now += 20 * time.Millisecond
		for p, _ := e.Next(now, nil); p != nil; p, _ = e.Next(now, nil) {
			now += 10 * time.Microsecond
		}
		limit.ranges = spans{{0, e.rec.next()}}
		if err := e.Handle(now, limit.appendAck(putNumber(nil, number), 1000), Unmarkable); err != nil {
			if !errors.Is(err, ErrPacket) || e.rec.next() > 3*maxSkip {
				t.Fatalf("after %d packets: %v", e.rec.next(), err)
			}
			t.Logf("after %d packets: %v", e.rec.next(), err)
			return
		}
	}
	t.Fatalf("nothing is noticed in %d packets", e.rec.next())
}
