package datagram

import (
	"testing"
	"time"
)

// quiet returns a world whose datagrams do not grow, so that nothing but messages and acknowledgements leaves, and two
// ends that are 10 ms apart. Datagrams are lost while *lost is true.
func quiet(t *testing.T) (w *world, a, b *end, lost *bool) {
	w = newWorld(t, 1)
	w.largest, lost = 1200, new(bool)
	there := path{delay: 10 * time.Millisecond, cut: func(time.Duration) bool { return *lost }}
	back := path{delay: 10 * time.Millisecond}
	a, b = w.pair(&there, &back, 32<<20)
	return w, a, b, lost
}

// say queues a record of so many bytes.
func (e *end) say(size int) {
	e.Queue(make([]byte, size), Free)
	e.pump()
}

func never() bool { return false }

// TestAcknowledgementsRide: where each end sends a small message within 25 ms of the other's, no packet carries an
// acknowledgement alone, and no packet asks for one in vain.
func TestAcknowledgementsRide(t *testing.T) {
	const rounds, atFirst = 200, firstCame
	w, a, b, _ := quiet(t)
	b.taken = func([]byte) { w.at(w.now+15*time.Millisecond, func() { b.say(100) }) }
	for i := range rounds {
		w.at(time.Duration(i)*40*time.Millisecond, func() { a.say(100) })
	}
	w.run(rounds*40*time.Millisecond, never)
	for _, e := range []*end{a, b} {
		if e.packets > rounds+atFirst {
			t.Errorf("%d messages took %d packets", rounds, e.packets)
		}
		if rtt := e.State().RTT; rtt != 20*time.Millisecond {
			t.Errorf("a round trip of 20 ms is said to take %v", rtt)
		}
	}
}

// TestLoneMessagesAreAcknowledged: small messages that nothing answers are acknowledged after 25 ms, and their sender
// waits so long before it probes.
func TestLoneMessagesAreAcknowledged(t *testing.T) {
	const messages = 100
	w, a, b, _ := quiet(t)
	for i := range messages {
		w.at(time.Duration(i)*100*time.Millisecond, func() { a.say(100) })
		if i < firstCame {
			continue
		}
		w.at(time.Duration(i)*100*time.Millisecond+20*time.Millisecond+longDelay-1, func() {
			if !a.Unacknowledged() {
				t.Errorf("message %d was acknowledged early", i)
			}
		})
		w.at(time.Duration(i)*100*time.Millisecond+20*time.Millisecond+longDelay+time.Microsecond, func() {
			if a.Unacknowledged() {
				t.Errorf("message %d was not acknowledged in time", i)
			}
		})
	}
	w.run(messages*100*time.Millisecond, never)
	if a.packets != messages || b.packets != messages {
		t.Errorf("%d messages took %d packets and %d back", messages, a.packets, b.packets)
	}
}

// TestFullPacketsAreAcknowledgedSoon: a sender whose window may hold it back hears of its packets after 5 ms. A packet
// that is not full behind them shows that it is not held back, and so does one full packet alone.
func TestFullPacketsAreAcknowledgedSoon(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		delay time.Duration
	}{
		"one packet that is not full": {700, longDelay},
		"one full packet":             {1100, longDelay},
		"three full packets":          {3 * 1130, shortDelay},
		"three full ones and a rest":  {3*1130 + 500, longDelay},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, _, _ := quiet(t)
			for i := range firstCame {
				w.at(time.Duration(i)*100*time.Millisecond, func() { a.say(1) })
			}
			w.at(2*time.Second, func() { a.say(c.size) })
			acknowledged := time.Duration(0)
			w.run(3*time.Second, func() bool {
				if w.now > 2*time.Second && !a.Unacknowledged() && acknowledged == 0 {
					acknowledged = w.now - 2*time.Second
				}
				return false
			})
			if d := acknowledged - 20*time.Millisecond - c.delay; d < 0 || d > time.Millisecond { // packets after the first are paced
				t.Errorf("acknowledged after %v, want %v after a round trip of 20 ms", acknowledged, c.delay)
			}
		})
	}
}

// TestSmallestWindowIsFilled: a sender that only four packets may leave from waits for no acknowledgement longer than
// 5 ms.
func TestSmallestWindowIsFilled(t *testing.T) {
	w, a, b, _ := quiet(t)
	got := 0
	b.taken = func(r []byte) { got += len(r) }
	a.refill = func() {
		a.bbr.timedOut() // each time that something could leave
		for a.Unsent() < 64<<10 {
			a.Queue(make([]byte, 16<<10), Free)
		}
	}
	w.at(w.now, a.pump)
	const seconds = 10
	w.run(seconds*time.Second, never)
	if minimum := seconds * 1000 / 26 * 3 * 1100; got < minimum {
		t.Errorf("%d bytes came in %d s, want %d: three packets in 26 ms", got, seconds, minimum)
	}
}

// TestLastPacketOfABurstIsMissedSoon: where a path has lost packets, the last one of a burst, which only a probe
// recovers, comes no later because acknowledgements may wait elsewhere.
func TestLastPacketOfABurstIsMissedSoon(t *testing.T) {
	const every = 200 * time.Millisecond
	took := func(losses int) time.Duration {
		w, a, b, lost := quiet(t)
		said, arrived := time.Duration(0), time.Duration(0)
		b.taken = func([]byte) { arrived = w.now }
		for i := range 60 {
			w.at(time.Duration(i)*every, func() {
				*lost = i >= 20 && i < 20+losses || i == 59
				said = w.now
				a.say(100)
				*lost = false
			})
		}
		w.run(59*every+every, never)
		return arrived - said
	}
	if d := took(2); d > 45*time.Millisecond {
		t.Errorf("after losses the last message comes after %v", d)
	}
	if d := took(0); d < 20*time.Millisecond+longDelay {
		t.Errorf("a probe leaves %v after a message though its acknowledgement may wait for 25 ms", d-10*time.Millisecond)
	}
}

// TestLosses: two losses within lossSpan numbers count for lossMemory, and others do not.
func TestLosses(t *testing.T) {
	var l losses
	for n := uint64(0); n < 100*lossSpan; n += lossSpan {
		l.lost(n)
		if l.some(n + 1) {
			t.Fatalf("losses %d numbers apart count", lossSpan)
		}
	}
	l = losses{}
	l.lost(0)
	l.lost(lossSpan - 1)
	if last := uint64(lossSpan - 1 + lossMemory); !l.some(last-1) || l.some(last) {
		t.Errorf("two losses count until number %d, want %d", l.until, last)
	}
}
