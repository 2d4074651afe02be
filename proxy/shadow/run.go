package shadow

import (
	"runtime"
	"time"
)

// run codes the values that come. After each value it sleeps for so long that it takes no more than its share of a
// core.
func (s *Shadow) run() {
	defer close(s.done)
	defer s.closeTrials()
	runtime.LockOSThread() // Used measures the processor time of this thread
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(idle / 4)
	defer tick.Stop()
	for {
		var x *item
		select {
		case <-s.ended:
			return
		case <-tick.C:
		case x = <-s.queue:
		}
		if x == nil {
			s.end(s.sweep(nil))
			continue
		}
		begin := s.config.Used()
		coded := s.code(x)
		s.release(x, false)
		s.end(s.sweep(x.window))
		if !coded {
			continue
		}
		took := s.config.Used() - begin
		s.spent(x, took)
		if s.config.Share < 1 {
			s.nap(time.Duration(float64(took) * (1/s.config.Share - 1)))
		}
	}
}

// sleep sleeps, or less if the Shadow ends.
func (s *Shadow) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C:
	}
}

// spent counts the time that a value took.
func (s *Shadow) spent(x *item, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Spent += took
	s.stats.Values++
	s.stats.Bytes += int64(len(x.data))
	s.perByte += (took.Seconds()/float64(len(x.data)) - s.perByte) / 16
	if w := x.window; w.active {
		now := s.perByte * float64(w.n) / max(w.interval, 1e-3)
		s.demand = max(0, s.demand+now-w.demand)
		w.demand = now
	}
}

// code has the candidates code a value. It returns false if none did: the value came after its window, or over one of
// too many connections.
func (s *Shadow) code(x *item) bool {
	w := x.window
	s.mu.Lock()
	stale := !w.active || w.off != x.off || w.n != x.n
	s.mu.Unlock()
	if stale {
		return false // its window has ended
	}
	if !w.begun {
		s.figures.Lock()
		w.begin(x.off, x.n, len(s.trials), s.waits(w))
		s.figures.Unlock()
	}
	p := &w.parts[w.at]
	lane := p.lanes.of(x.span, s.clock(), func() (lines []Line) {
		for _, t := range s.trials {
			lines = append(lines, t.Line(x.flow, w.id.Peer, x.has))
		}
		return lines
	})
	if lane == nil {
		return false
	}
	p.values++
	t := x.sampled()
	for i, line := range lane.lines {
		if p.skipped[i] {
			continue
		}
		m, err := line.Send(t, x.data, x.runs)
		if err != nil {
			continue // the codec has a defect, which the real path would log; the value does not count
		}
		s.figures.Lock()
		p.accounts[i].add(&m, &lane.counts[i])
		p.coded[i]++
		s.figures.Unlock()
	}
	return true
}

// end closes the lines of windows that have ended.
func (s *Shadow) end(ended []*window) {
	for _, w := range ended {
		s.figures.Lock()
		w.end(s.waits(w))
		s.figures.Unlock()
	}
}
