package tunnel

import (
	"testing"
	"time"
)

// path is a bottleneck that a meter looks at: it brings pieces after rtt, rate bytes apart, and holds them up where
// hold says so.
type path struct {
	m    meter
	now  time.Time
	rtt  time.Duration
	rate float64
}

// send sends n bytes in pieces, and waits until all are acknowledged. hold returns how long a piece is held up; the
// pieces behind it are acknowledged with it.
func (p *path) send(n int, hold func(piece int) time.Duration) {
	const piece = 64 << 10
	free := p.now
	var held time.Time
	type ack struct {
		at time.Time
		n  int
	}
	var acks []ack
	for i := 0; i < n/piece; i++ {
		p.m.left(p.now, p.rtt, piece)
		free = free.Add(time.Duration(piece / p.rate * 1e9))
		at := free.Add(p.rtt)
		if d := hold(i); d > 0 {
			held = at.Add(d)
		}
		if at.Before(held) {
			at = held
		}
		acks = append(acks, ack{at, piece})
	}
	for _, a := range acks {
		p.now = a.at
		p.m.acknowledged(a.at, p.rtt, a.n)
	}
}

func never(int) time.Duration { return 0 }

// A few bytes whose acknowledgements waited for a packet to ride with show no rate.
func TestMeterKnowsThatAcknowledgementsWait(t *testing.T) {
	const few = ackFew - 1
	m, now, rtt := meter{}, time.Unix(1000, 0), 10*time.Millisecond
	m.left(now, rtt, few)
	m.acknowledged(now.Add(rtt+ackTime(rtt)+time.Millisecond), rtt, few)
	if got := m.take(); got != 0 {
		t.Errorf("%.0f bytes/s", got)
	}
	now = now.Add(time.Second)
	m.left(now, rtt, few)
	m.acknowledged(now.Add(rtt+time.Second), rtt, few)
	if got := m.take(); got != few {
		t.Errorf("%.0f bytes/s, want %d", got, few)
	}
}

// Bursts of 1 MiB between pauses, and a long transfer, show the rate of the bottleneck.
func TestMeterFindsTheBottleneck(t *testing.T) {
	for name, size := range map[string]int{"bursts": 1 << 20, "long": 64 << 20} {
		p := &path{now: time.Unix(1000, 0), rtt: 60 * time.Millisecond, rate: 6.25e6}
		for range 3 {
			p.send(size, never)
			p.now = p.now.Add(200 * time.Millisecond)
		}
		if got := p.m.take(); got < 0.98*p.rate || got > 1.05*p.rate {
			t.Errorf("%s: %.0f bytes/s, not %.0f", name, got, p.rate)
		}
		if got := p.m.take(); got != 0 {
			t.Errorf("%s: %.0f bytes/s of nothing", name, got)
		}
	}
}

// Bytes that a lost packet holds up for a round trip or two, and that then come at once, are not taken for a faster
// path.
func TestMeterBearsLosses(t *testing.T) {
	p := &path{now: time.Unix(1000, 0), rtt: 80 * time.Millisecond, rate: 25e6}
	p.send(256<<20, func(i int) time.Duration {
		if i%97 == 50 {
			return 160 * time.Millisecond
		}
		return 0
	})
	if got := p.m.take(); got < 0.9*p.rate || got > 1.35*p.rate {
		t.Errorf("%.0f bytes/s, not about %.0f", got, p.rate)
	}
}

// Small messages to and fro show no rate.
func TestMeterNeedsMoreThanMessages(t *testing.T) {
	p := &path{now: time.Unix(1000, 0), rtt: 20 * time.Millisecond, rate: 1e9}
	for range 100 {
		p.m.left(p.now, p.rtt, 48)
		p.now = p.now.Add(p.rtt + ackDelay)
		p.m.acknowledged(p.now, p.rtt, 48)
		p.now = p.now.Add(time.Second)
	}
	if got := p.m.take(); got != 0 {
		t.Errorf("%.0f bytes/s, not unknown", got)
	}
}
