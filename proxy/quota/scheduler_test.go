package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work has n connections of a peer do pieces of work that take so long each, until the end, and returns a function that
// says how many were done.
func (s *scheduler) work(wg *sync.WaitGroup, of *share, n int, long time.Duration, end time.Time) (done func() int) {
	var mu sync.Mutex
	sum := 0
	for range n {
		wg.Go(func() {
			g := new(grant)
			for time.Now().Before(end) {
				s.begin(g, of)
				time.Sleep(long)
				s.end(g)
				mu.Lock()
				sum++
				mu.Unlock()
			}
		})
	}
	return func() int { return sum }
}

// Two peers that both have more to do than the cores can have equally much done, however many connections each has.
func TestSchedulerIsFairToPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler{cores: 4}
		var wg sync.WaitGroup
		var mallory, honest share
		end := time.Now().Add(time.Second)
		many := s.work(&wg, &mallory, 100, 100*time.Microsecond, end)
		few := s.work(&wg, &honest, 4, 100*time.Microsecond, end)
		wg.Wait()
		if a, b := many(), few(); b < a*9/10 {
			t.Errorf("100 connections of one peer had %d pieces of work done, 4 of another %d", a, b)
		}
		if len(s.held)+len(s.queue)+mallory.held+honest.held != 0 {
			t.Errorf("%d grants are held, %d awaited", len(s.held), len(s.queue))
		}
	})
}

// A single connection of a peer never waits for those of others.
func TestSchedulerLetsOneConnectionWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler{cores: 2}
		var wg sync.WaitGroup
		var mallory, honest share
		end := time.Now().Add(time.Second)
		s.work(&wg, &mallory, 100, 100*time.Microsecond, end)
		one := s.work(&wg, &honest, 1, 50*time.Microsecond, end)
		wg.Wait()
		if n := one(); n != 20_000 {
			t.Errorf("it had %d pieces of 50 µs done in a second", n)
		}
	})
}

// While the other peers are idle one peer has all cores, and work that blocks keeps nobody waiting for longer than a
// grant lasts.
func TestSchedulerKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler{cores: 2}
		var wg sync.WaitGroup
		var busy, blocked share
		end := time.Now().Add(time.Second)
		all := s.work(&wg, &busy, 10, 100*time.Microsecond, end)
		wg.Wait()
		if n := all(); n < 20_000 || n > 20_010 {
			t.Errorf("one peer on 2 cores had %d pieces of 100 µs done in a second", n)
		}
		for range 50 {
			wg.Go(func() {
				var g grant
				s.begin(&g, &blocked)
				time.Sleep(time.Hour)
				s.end(&g)
			})
		}
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		var g grant
		s.begin(&g, &blocked)
		s.end(&g)
		if d := time.Since(begin); d > lapse {
			t.Errorf("beside connections whose apps do not read another one of the peer waits for %v", d)
		}
		wg.Wait()
		if len(s.held)+len(s.queue)+blocked.held != 0 {
			t.Errorf("%d grants are held, %d awaited", len(s.held), len(s.queue))
		}
	})
}
