package datagram

import "time"

// A deliveryRate counts the bytes that the network has delivered, and makes a sample of its rate from each
// acknowledgement. See draft-ietf-ccwg-bbr-02, section 4.1 (and draft-cheng-iccrg-delivery-rate-estimation).
type deliveryRate struct {
	delivered   uint64        // bytes that the other end has acknowledged
	deliveredAt time.Duration // when that number last grew
	firstSent   time.Duration // when the packet left that was acknowledged last
	appLimited  uint64        // while delivered is below: the application had nothing to send; 0: it had
	lost        uint64        // bytes that were declared lost, or met congestion
	marked      uint64        // bytes of these that met congestion, and arrived
	train       train
}

// A train is the packets that leave after none was under way, before any of them is acknowledged. The rate of the
// draft's samples is at most a train's bytes in a round trip, which says little of the path where an application sends
// a burst and waits for an answer: bursts would be spread over the round trip. So the spacing of a train's
// acknowledgements is a sample too, without the round trip before the first one. It is at most the rate at which the
// train left.
type train struct {
	began   uint64        // delivered when it began
	ackedAt time.Duration // when a packet of it was first acknowledged; 0: none was
	sentAt  time.Duration // when the newest of the packets left that were acknowledged then
	acked   uint64        // delivered then
}

const (
	trainBytes = 16 << 10         // a shorter train shows no rate
	trainTime  = time.Millisecond // nor does one whose acknowledgements come together
)

// rate returns the rate that a train shows when its newest packet was acknowledged at now; 0: none.
func (t *train) rate(now time.Duration, newest *stamp, sentAt time.Duration, delivered uint64) float64 {
	switch {
	case newest.delivered != t.began:
		return 0
	case t.ackedAt == 0:
		t.ackedAt, t.sentAt, t.acked = now, sentAt, delivered
		return 0
	case delivered-t.acked < trainBytes:
		return 0
	}
	took := max(now-t.ackedAt, sentAt-t.sentAt)
	if took < trainTime {
		return 0
	}
	return float64(delivered-t.acked) / took.Seconds()
}

// A stamp is the state of a deliveryRate when a packet left.
type stamp struct {
	delivered   uint64
	deliveredAt time.Duration
	firstSent   time.Duration
	lost        uint64
	inflight    int // bytes under way, this packet's too
	appLimited  bool
}

// A sample is the measurement that one acknowledgement gives.
type sample struct {
	rate       float64 // bytes per second; 0: unknown
	delivered  uint64  // bytes, since the newest acknowledged packet left
	prior      uint64  // delivered when that packet left
	lost       uint64  // bytes declared lost since then
	inflight   int     // bytes under way when it left
	appLimited bool
	acked      int           // bytes newly acknowledged
	rtt        time.Duration // of the newest packet; 0: not measured

	newest   stamp
	newestAt time.Duration
	some     bool
}

// stamp returns the stamp of a packet of size bytes that leaves now. inflight is the number of bytes under way without
// it.
func (d *deliveryRate) stamp(now time.Duration, size, inflight int) stamp {
	if inflight == 0 {
		d.firstSent, d.deliveredAt = now, now
		d.train = train{began: d.delivered}
	}
	return stamp{delivered: d.delivered, deliveredAt: d.deliveredAt, firstSent: d.firstSent, lost: d.lost,
		inflight: inflight + size, appLimited: d.appLimited > 0}
}

// acked notes a packet of size bytes that left at sent with stamp p, and that now is acknowledged.
func (d *deliveryRate) acked(now time.Duration, s *sample, p *stamp, sent time.Duration, size int) {
	d.delivered += uint64(size)
	d.deliveredAt = now
	s.acked += size
	if !s.some || p.delivered > s.newest.delivered || p.delivered == s.newest.delivered && sent > s.newestAt {
		s.some, s.newest, s.newestAt = true, *p, sent
	}
}

// finish completes the sample of an acknowledgement. minRTT is the shortest round trip known: a shorter interval proves
// no rate.
func (d *deliveryRate) finish(s *sample, minRTT time.Duration) {
	if d.appLimited > 0 && d.delivered > d.appLimited {
		d.appLimited = 0
	}
	if !s.some {
		return
	}
	d.firstSent = s.newestAt
	s.prior, s.inflight, s.appLimited = s.newest.delivered, s.newest.inflight, s.newest.appLimited
	s.delivered, s.lost = d.delivered-s.newest.delivered, d.lost-s.newest.lost
	interval := max(s.newestAt-s.newest.firstSent, d.deliveredAt-s.newest.deliveredAt)
	if interval >= minRTT && interval > 0 {
		s.rate = float64(s.delivered) / interval.Seconds()
	}
	if rate := d.train.rate(d.deliveredAt, &s.newest, s.newestAt, d.delivered); s.appLimited {
		s.rate = max(s.rate, rate)
	}
}
