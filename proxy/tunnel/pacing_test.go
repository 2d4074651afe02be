package tunnel

import (
	"testing"
	"time"
)

const mib = 1 << 20

// A pacedPath is a connection under BBR that a pacer has readings of: as bursts of 2 MiB in a round trip of 80 ms leave
// it.
type pacedPath struct {
	t     *testing.T
	now   time.Time
	pacer pacer
	reading
}

func newPacedPath(t *testing.T) *pacedPath {
	return &pacedPath{t: t, now: time.Unix(1000, 0), reading: reading{
		open: true, startup: true, bandwidth: 25 * mib, pacing: 72 * mib, window: 5.77 * mib, rtt: 80 * time.Millisecond,
		sent: 100_000,
	}}
}

// burst lets a round trip pass and packets leave. Some are lost, and since then there has been nothing to send.
func (p *pacedPath) burst(sent, lost uint32) {
	p.now = p.now.Add(p.rtt)
	p.sent += sent
	p.lost += lost
	p.pacer.waits(p.now)
	p.now = p.now.Add(time.Millisecond)
}

// want asks before the next burst.
func (p *pacedPath) want(want verdict) {
	p.t.Helper()
	if got := p.pacer.judge(p.now, p.reading); got != want {
		p.t.Fatalf("verdict %d, want %d, on %+v", got, want, p.reading)
	}
	if want == paceAnew {
		p.pacing = startupGain * p.window / p.rtt.Seconds() // as the kernel does
	}
}

func TestPacerHasBBRBeginAnewUntilTheWindowIsWhatBurstsNeed(t *testing.T) {
	p := newPacedPath(t)
	p.sent, p.window, p.pacing = 0, 1*mib, 12*mib
	p.burst(700, 0)
	p.want(paceOn) // that is too little to know the path by
	p.burst(700, 0)
	p.want(paceAnew)
	p.burst(1400, 0)
	p.want(paceOn) // the last time is not a round trip's answer ago
	p.window = 1.3 * mib
	p.burst(1400, 0)
	p.want(paceOn) // not worth it
	p.window = 5.77 * mib
	p.burst(1400, 0)
	p.want(paceAnew)
	for range 1000 {
		p.burst(1400, 0)
		p.want(paceOn)
	}
}

func TestPacerLeavesBulkAlone(t *testing.T) {
	p := newPacedPath(t)
	p.burst(1400, 0)
	p.now = p.now.Add(p.rtt) // all of which there was something to send
	p.want(paceOn)
}

func TestPacerLeavesABBRAloneThatHasFoundThePathFull(t *testing.T) {
	p := newPacedPath(t)
	p.startup = false
	p.burst(1400, 0)
	p.want(paceOn)
}

func TestPacerWaitsUntilLossesAreMadeUpFor(t *testing.T) {
	p := newPacedPath(t)
	p.open = false // and it is not bursts that have made the window
	p.burst(1400, 1)
	p.want(paceOn)
	p.open = true
	p.burst(1400, 0)
	p.want(paceAnew)
}

func TestPacerGivesUpWhereBurstsAreLost(t *testing.T) {
	p := newPacedPath(t)
	p.burst(1400, 0)
	p.want(paceAnew)
	p.burst(1400, 300)
	p.bandwidth = 12 * mib // since it began anew
	p.want(paceBefore)
	if got, want := p.pacer.before(), startupGain*25*mib; got != want {
		t.Errorf("BBR is to pace at %v bytes per second, want %v: the most that it has seen, times its gain", got, want)
	}
	p.pacing = 72 * mib
	p.burst(1400, 0)
	if p.pacer.due(p.now, mib) {
		t.Error("the connection is read again after the pacer has given up")
	}
}

func TestPacerBearsLossesThatBBRBears(t *testing.T) {
	p := newPacedPath(t)
	p.burst(1400, 0)
	p.want(paceAnew)
	for range 1000 {
		p.burst(1400, 14)
		p.want(paceOn)
	}
	p.burst(3, 2) // a tail probe, say, and the packet that it was for
	p.want(paceOn)
}

func TestPacerLeavesAPathAloneThatLoses(t *testing.T) {
	p := newPacedPath(t)
	p.sent = 0
	for range 1000 {
		p.burst(1400, 1)
		p.want(paceOn)
	}
}

func TestPacerForgivesALossInTime(t *testing.T) {
	p := newPacedPath(t)
	p.burst(1400, 20)
	p.want(paceOn)
	p.sent += 150_000
	p.burst(1400, 0)
	p.want(paceAnew)
}

func TestPacerReadsSeldom(t *testing.T) {
	var p pacer
	now := time.Unix(1000, 0)
	if p.due(now, paceBurst-1) {
		t.Error("it reads before a few bytes")
	}
	if !p.due(now, paceBurst) {
		t.Error("it does not read before many")
	}
	p.judge(now, reading{rtt: time.Millisecond})
	if p.due(now.Add(readEvery-1), mib) {
		t.Error("it reads again too early")
	}
	if !p.due(now.Add(readEvery), mib) {
		t.Error("it never reads again")
	}
}
