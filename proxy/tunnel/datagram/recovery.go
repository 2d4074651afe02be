package datagram

import (
	"math/rand/v2"
	"time"
)

const (
	ackEvery = 8 // packets after which an acknowledgement waits no longer

	// A packet is lost if one that left packetThreshold later has arrived, or one that left 9/8 of a round trip later:
	// RFC 9002, 6.1. Where losses turn out to be late arrivals, the number of packets grows up to maxThreshold.
	packetThreshold = 3
	maxThreshold    = 300

	maxProbeBackoff = 6 // doublings of the time until the next probe
	probeNarrows    = 3 // probes without an answer, after which the window is the smallest
	maxSpare        = 1 << 10
	maxSent         = 1 << 17 // packets that are noted; of a packet that asks for no acknowledgement only the number is
)

type packetState uint8

const (
	packetGone   packetState = iota // acknowledged
	packetFlying                    // counted as under way
	packetLost                      // declared lost; a late acknowledgement is noted
)

// A sentPacket is a packet that has left.
type sentPacket struct {
	state     packetState
	size      int
	length    int  // bytes of it without Config.Overhead
	pings     bool // it has a ping frame
	probe     bool // of a size not known to pass: its loss is no congestion
	at        time.Duration
	stamp     stamp
	acks      uint64 // the ack that it carries knows all packets below; 0: none
	parts     []part
	eliciting bool
	marked    bool // it left as ECT0
	paced     bool // it counts for the rate, though it asks for no acknowledgement
	tells     bool // it tells with which marks packets came
}

// A recovery knows the packets under way, and decides which are lost.
type recovery struct {
	rtt       rtt
	rate      deliveryRate
	losses    losses
	delays    ackDelay      // of the packets that have left
	base      uint64        // number of sent[0]
	sent      []*sentPacket // in the order of their numbers, nil for packets that ask for no acknowledgement; the oldest is not gone
	gone      spans         // acknowledged numbers from base on
	checked   uint64        // no packet below is under way
	inflight  int           // bytes
	largest   uint64        // one more than the largest acknowledged number
	threshold uint64
	lastSent  time.Duration // when the last packet left that asks for an acknowledgement
	delay     time.Duration // that the other end may wait before it acknowledges that one
	eliciting int           // packets under way that ask for one
	lossAt    time.Duration // when the oldest packet is lost by time; 0: none waits for that
	probes    int           // probes since the last acknowledgement
	probesDue int           // probes that may leave although the window is full
	skipAt    uint64        // the next number that no packet gets
	skipped   [16]uint64    // the last ones, plus 1
	spare     []*sentPacket // forgotten ones, to be used again
}

// Numbers that no packet gets, at random: only an end names them that acknowledges packets which have not come, so that
// more is sent than the path carries. RFC 9000, section 21.4. Few are enough: each is a gap in the acknowledgements.
const (
	minSkip = 512  // numbers between two of them
	maxSkip = 2048 // fewer than this
)

// skip leaves a number out, where one is due.
func (r *recovery) skip(random *rand.Rand) {
	n := r.next()
	if r.skipAt == 0 {
		r.skipAt = n + minSkip + random.Uint64N(maxSkip-minSkip)
	}
	if n != r.skipAt {
		return
	}
	copy(r.skipped[1:], r.skipped[:])
	r.skipped[0] = n + 1
	r.sent = append(r.sent, nil)
	r.skipAt = n + minSkip + random.Uint64N(maxSkip-minSkip)
}

// neverLeft returns a number in an acknowledgement that no packet had.
func (r *recovery) neverLeft(ranges spans) (number uint64, some bool) {
	for _, k := range r.skipped {
		for _, s := range ranges {
			if k > s.first && k <= s.end {
				return k - 1, true
			}
		}
	}
	return 0, false
}

func (r *recovery) next() uint64 { return r.base + uint64(len(r.sent)) }

func (r *recovery) at(number uint64) *sentPacket { return r.sent[number-r.base] }

// add notes a packet that leaves.
func (r *recovery) add(now time.Duration, p *sentPacket) {
	if !p.eliciting {
		r.sent = append(r.sent, nil)
		r.drop(p)
		r.trim(now)
		return
	}
	p.at = now
	p.state = packetFlying
	p.stamp = r.rate.stamp(now, p.size, r.inflight)
	r.inflight += p.size
	r.eliciting++
	r.lastSent, r.delay = now, r.delays.after(p.length, p.pings)
	r.sent = append(r.sent, p)
	r.trim(now)
}

// fresh returns a packet to fill in, which add takes.
func (r *recovery) fresh() *sentPacket {
	n := len(r.spare)
	if n == 0 {
		return &sentPacket{}
	}
	p := r.spare[n-1]
	r.spare = r.spare[:n-1]
	return p
}

// drop forgets a packet; nil: there is none.
func (r *recovery) drop(p *sentPacket) {
	if p == nil || len(r.spare) == maxSpare {
		return
	}
	clear(p.parts)
	*p = sentPacket{parts: p.parts[:0]}
	r.spare = append(r.spare, p)
}

// land notes that a packet is no longer under way.
func (r *recovery) land(p *sentPacket, state packetState) {
	if p.state == packetFlying {
		r.inflight -= p.size
		r.eliciting--
	}
	p.state = state
}

// trim forgets the oldest packets that are gone, or lost for so long that no acknowledgement will come.
func (r *recovery) trim(now time.Duration) {
	i := 0
	for i < len(r.sent) {
		p := r.sent[i]
		if p != nil && (p.state == packetFlying || p.state == packetLost && now-p.at < 3*r.probeAfter() && len(r.sent) < maxSent) {
			break
		}
		r.sent[i] = nil
		r.drop(p)
		i++
	}
	if i == 0 {
		return
	}
	r.base += uint64(i)
	r.sent = r.sent[i:]
	for len(r.gone) > 0 && r.gone[0].end <= r.base {
		r.gone = r.gone[1:]
	}
}

// acknowledged takes the ranges of an ack frame, newest first. acked is called for each packet that is new in it, late
// if it had been declared lost. newest reports the round trip of the newest one, if it is new.
func (r *recovery) acknowledged(now time.Duration, ranges spans, acked func(p *sentPacket, late bool)) (newest time.Duration, some bool) {
	largest := ranges[0].end
	for i, s := range ranges {
		known := r.gone.upTo(s.end)
		for n := s.end; n > s.first && n > r.base; n-- {
			for known > 0 && r.gone[known-1].first >= n {
				known--
			}
			if known > 0 && r.gone[known-1].end >= n { // a known one
				n = r.gone[known-1].first + 1
				continue
			}
			p := r.at(n - 1)
			if p == nil {
				continue
			}
			switch p.state {
			case packetGone:
				continue
			case packetLost:
				r.threshold = min(max(r.threshold, largest-n+1), maxThreshold)
				acked(p, true)
			case packetFlying:
				if i == 0 && n == largest && n > r.largest {
					newest = now - p.at
				}
				acked(p, false)
				some = true
			}
			r.land(p, packetGone)
		}
		r.gone.add(max(s.first, r.base), s.end)
		if s.first <= r.base {
			break
		}
	}
	r.largest = max(r.largest, largest)
	if some {
		r.probes, r.probesDue = 0, 0
	}
	return newest, some
}

// detect declares packets lost: RFC 9002, 6.1. lost is called for each.
func (r *recovery) detect(now time.Duration, lost func(p *sentPacket)) {
	r.lossAt = 0
	base := max(r.rtt.smoothed, r.rtt.latest)
	if !r.rtt.measured {
		base = initialRTT
	}
	wait := max(base*9/8, granularity)
	if r.threshold > packetThreshold { // the path reorders
		wait = base * 5 / 4
	}
	first := r.largest // the oldest one under way, if there is one below
	for n := max(r.base, r.checked); n < r.largest; n++ {
		p := r.at(n)
		if p == nil || p.state != packetFlying {
			continue
		}
		if r.largest-1-n >= r.threshold || now-p.at >= wait {
			if !p.probe {
				r.rate.lost += uint64(p.size)
				r.losses.lost(n)
			}
			r.land(p, packetLost)
			lost(p)
			continue
		}
		first = min(first, n)
		if due := p.at + wait; r.lossAt == 0 || due < r.lossAt {
			r.lossAt = due
		}
	}
	r.checked = first
	r.trim(now)
}

// abandon declares all packets lost that are under way, since the path is another one now. That says nothing of
// congestion.
func (r *recovery) abandon(lost func(p *sentPacket)) {
	for _, p := range r.sent {
		if p != nil && p.state == packetFlying {
			r.land(p, packetLost)
			lost(p)
		}
	}
	r.lossAt, r.checked, r.probes = 0, r.next(), 0
}

// timer returns when expired must be called; 0: never.
func (r *recovery) timer() time.Duration {
	switch {
	case r.lossAt != 0:
		return r.lossAt
	case r.eliciting == 0:
		return 0
	}
	return r.lastSent + r.probeAfter()<<min(r.probes, maxProbeBackoff)
}

// probeAfter returns the time after the last packet in which it must be acknowledged, or a probe leaves.
func (r *recovery) probeAfter() time.Duration { return r.rtt.probeAfter(r.delay) }

// probe allows two packets beyond the window, since nothing has been acknowledged for too long: RFC 9002, 6.2.4.
func (r *recovery) probe() {
	r.probes++
	r.probesDue = 2
}
