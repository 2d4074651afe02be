package datagram

import (
	"fmt"
	"time"
)

// Handle takes a packet that came with a mark. It does not retain it. An error, which wraps ErrPacket, ends the
// connection.
func (e *Engine) Handle(now time.Duration, packet []byte, mark Mark) error {
	if e.err == nil {
		e.err = e.handle(now, packet, mark)
	}
	return e.err
}

func (e *Engine) handle(now time.Duration, packet []byte, mark Mark) error {
	r := packetReader{rest: packet}
	number := wholeNumber(r.number(), e.nextHere())
	if r.err != nil || number < e.floor || e.received.contains(number) {
		return r.err
	}
	eliciting, pings, acked := false, false, false
	var news ackNews
	var fragments []byte // and all behind them
	behind := 0          // bytes behind the last one
frames:
	for len(r.rest) > 0 && r.err == nil {
		kind := r.byte()
		eliciting = eliciting || kind != frameAck && kind != framePadding
		switch {
		case kind == framePadding:
			news.toldMarks = r.marks(&news.marks)
			if p, ok := r.repair(); ok && r.err == nil {
				r.err = e.mend(&p)
			}
			break frames
		case kind == framePing:
			pings = true
		case kind == frameAck:
			if acked { // each costs a look at the packets that have left
				r.fail("a second ack frame")
				break frames
			}
			acked = true
			if r.ack(&e.ack, e.rec.next()); r.err == nil {
				news, r.err = e.acknowledge(now)
			}
		case isFragment(kind):
			if fragments == nil {
				fragments = packet[len(packet)-len(r.rest)-1:]
			}
			if f := r.fragment(kind); r.err == nil {
				e.dataAt = now
				r.err = e.recv.fragment(f)
				behind = len(r.rest)
			}
		default:
			r.fail("frame of kind %d", kind)
		}
	}
	if r.err != nil {
		return r.err
	}
	if acked {
		e.learnMarks(now, &news)
	}
	if e.repaired && fragments != nil && len(packet) <= repairPacket {
		e.recent.keep(number, fragments[:len(fragments)-behind])
	}
	e.came.add(mark)
	e.note(now, number, len(packet), eliciting, pings)
	return nil
}

// mend takes a repair, and the fragments of the packet that it replaces.
func (e *Engine) mend(p *repair) error {
	e.repaired = true
	r := packetReader{rest: e.recent.mend(p, func(number uint64) bool { return number < e.floor || e.received.contains(number) })}
	if r.rest != nil {
		e.mended++
	}
	for len(r.rest) > 0 && r.err == nil {
		kind := r.byte()
		if !isFragment(kind) {
			r.fail("a repair with a frame of kind %d", kind)
			break
		}
		if f := r.fragment(kind); r.err == nil {
			r.err = e.recv.fragment(f)
		}
	}
	return r.err
}

// lossy reports whether the path loses packets, so that repairs are worth their bytes.
func (e *Engine) lossy() bool {
	d := &e.rec.rate
	lost := d.lost - d.marked
	return !e.repairs.never && e.mtu.size() <= repairPacket && lost > repairSeen*uint64(e.bbr.packet) && lost*repairLoss > d.delivered &&
		e.bbr.bdp(e.bbr.bw(), 1) > repairPath
}

// nextHere returns one more than the largest number of the packets that came.
func (e *Engine) nextHere() uint64 {
	if n := len(e.received); n > 0 {
		return e.received[n-1].end
	}
	return 0
}

// note remembers a packet of so many bytes that came, for acknowledgements. pings: it has a ping frame.
func (e *Engine) note(now time.Duration, number uint64, length int, eliciting, pings bool) {
	next := e.nextHere()
	e.received.add(number, number+1)
	const limit = 256
	if n := len(e.received); n > limit {
		e.floor = e.received[n-limit].first
		e.received = append(e.received[:0], e.received[n-limit:]...)
	}
	if number >= next {
		e.newestAt = now
	}
	if !eliciting {
		return
	}
	if e.unacked++; e.unacked == 1 {
		e.unackedAt = now
	}
	switch delay := e.delays.after(length, pings); {
	case number != next || e.unacked >= ackEvery: // after a gap the other end waits to hear of it
		e.ackAt = now
	case e.firstHere < firstCame:
		e.firstHere++
		e.ackAt = now
	case delay == longDelay && (e.ackAt == 0 || e.ackAt > now): // the sender has nothing more, though a full packet came before
		e.ackAt = e.unackedAt + delay
	case e.ackAt == 0 || now+delay < e.ackAt:
		e.ackAt = now + delay
	}
}

// An ackNews is the news about marks that come with an ack frame.
type ackNews struct {
	later     bool   // it acknowledges a later packet than all before
	marked    uint64 // packets that left as ECT0, and are acknowledged for the first time
	newest    stamp  // of the newest packet that is acknowledged for the first time
	toldMarks bool   // marks is told
	marks     markCount
}

// acknowledge takes the ack frame in e.ack.
func (e *Engine) acknowledge(now time.Duration) (news ackNews, err error) {
	if number, skipped := e.rec.neverLeft(e.ack.ranges); skipped {
		return news, fmt.Errorf("%w: it acknowledges packet %d, which has never left", ErrPacket, number)
	}
	e.send.limit = max(e.send.limit, e.ack.limit)
	news.later = e.ack.ranges[0].end > e.rec.largest
	s := sample{}
	newest, some := e.rec.acknowledged(now, e.ack.ranges, func(p *sentPacket, late bool) {
		if p.marked {
			news.marked++
		}
		for _, q := range p.parts {
			e.send.arrived(q)
		}
		if p.acks > 0 {
			e.forget(p.acks)
		}
		if late {
			return
		}
		e.outcome.count(now, false)
		if p.probe {
			e.mtu.acked(p.size)
			e.bbr.packet = e.mtu.size()
		}
		if p.eliciting {
			e.rec.rate.acked(now, &s, &p.stamp, p.at, p.size)
		}
	})
	if newest > 0 {
		delay := min(e.ack.delay, longDelay)
		e.rec.rtt.sample(newest, delay)
		// BBR's window must hold the packets of shortDelay too, since a sender that fills it waits for their
		// acknowledgement.
		s.rtt = max(newest-max(delay-shortDelay, 0), e.rec.rtt.min)
	}
	e.detect(now)
	if !some {
		return news, nil
	}
	e.rec.rate.finish(&s, e.rec.rtt.min)
	e.bbr.acked(now, &s, &e.rec.rate, e.rec.inflight, e.limited)
	e.limited = false
	news.newest = s.newest
	return news, nil
}

// learnMarks takes the news about marks. A packet that has met congestion counts as a lost one does, but it has
// arrived: RFC 3168, section 5, and RFC 9002, section 7.1.
func (e *Engine) learnMarks(now time.Duration, news *ackNews) {
	e.marking.arrived(news.marked)
	if !news.toldMarks || !news.later {
		return
	}
	for range e.marking.tell(news.marks) {
		e.rec.rate.lost += uint64(e.bbr.packet)
		e.rec.rate.marked += uint64(e.bbr.packet)
		e.bbr.lost(now, &news.newest, e.bbr.packet, &e.rec.rate)
	}
}

// forget drops numbers of packets that the other end knows to have arrived. Some are kept, in case older ones come
// late.
func (e *Engine) forget(known uint64) {
	const late = 4 * maxThreshold
	if known < late {
		return
	}
	for len(e.received) > 1 && e.received[0].end < known-late {
		e.received = e.received[1:]
	}
	e.floor = max(e.floor, min(known-late, e.received[0].first))
}

// detect declares packets lost.
func (e *Engine) detect(now time.Duration) {
	e.rec.detect(now, func(p *sentPacket) {
		for _, q := range p.parts {
			e.send.lost(q)
		}
		if p.marked {
			e.marking.dropped()
		}
		if p.probe {
			e.mtu.lost(now)
			return
		}
		e.outcome.count(now, true)
		e.bbr.lost(now, &p.stamp, p.size, &e.rec.rate)
	})
}
