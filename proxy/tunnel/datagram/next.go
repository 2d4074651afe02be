package datagram

import (
	"fmt"
	"time"
)

// Next returns the next packet to send now, appended to dst, which must be empty with room for a datagram. Where none
// may leave now, the packet is nil, and Next must be called again at the time that it returns, or after any other
// method; 0: only then.
func (e *Engine) Next(now time.Duration, dst []byte) (packet []byte, again time.Duration) {
	if t := e.rec.timer(); t != 0 && now >= t {
		e.expired(now)
	}
	if e.MayTell() {
		return e.build(now, dst, true), 0
	}
	full := e.rec.inflight+e.mtu.size() > e.bbr.cwnd
	data := e.send.waiting()
	probe := e.mtu.due(now)
	switch {
	case e.rec.probesDue > 0:
		e.rec.probesDue--
		if p, ok := e.send.oldest(); ok && len(e.send.again) == 0 {
			e.send.again = append(e.send.again, p)
		}
		return e.build(now, dst, true), 0
	case data && full:
		e.limited = true
	case probe > 0 && e.rec.rtt.measured && !full && now >= e.paceAt:
		return e.buildProbe(now, dst, probe), 0
	case data && now < e.paceAt:
		e.rest(now)
	case data && now >= e.restAt:
		return e.build(now, dst, false), 0
	case !data && !full:
		e.rec.rate.appLimited = max(e.rec.rate.delivered+uint64(e.rec.inflight), 1)
	}
	if e.ackAt != 0 && now >= e.ackAt {
		return e.buildAck(now, dst), 0
	}
	mends := !data && len(e.repairs.since) > 0
	if mends && now >= max(e.repairs.dueAt, e.paceAt) {
		return e.buildRepair(now, dst), 0
	}
	at := func(t time.Duration) {
		if t != 0 && (again == 0 || t < again) {
			again = t
		}
	}
	at(e.rec.timer())
	at(e.ackAt)
	if data && !full {
		at(max(e.paceAt, e.restAt))
	}
	if mends {
		at(max(e.repairs.dueAt, e.paceAt))
	}
	return nil, again
}

// rest has data wait until as much may leave as the quantum, or as there is: draft-ietf-ccwg-bbr-02, section 4.6.3. One
// call sends all of it, where each packet would need one by itself.
func (e *Engine) rest(now time.Duration) {
	if e.restAt > now || len(e.send.again) > 0 {
		return
	}
	more := min(e.bbr.quantum(), e.send.unsent) - e.mtu.size()
	e.restAt = e.paceAt + time.Duration(float64(max(more, 0))/e.bbr.pacing*1e9)
}

// expired acts on the timer of the recovery.
func (e *Engine) expired(now time.Duration) {
	if e.rec.lossAt != 0 {
		e.detect(now)
		return
	}
	e.rec.probe()
	if e.rec.probes < probeNarrows {
		return
	}
	e.bbr.timedOut()
	if now-e.rec.rate.deliveredAt >= outcomeFor { // sooner it may be the other host, which does not let its process run
		e.outcome.heavy++
		e.mtu.blackHole(now)
		e.bbr.packet = e.mtu.size()
	}
}

// begin writes the number of a packet, and the ack frame that is due or nearly due.
func (e *Engine) begin(now time.Duration, dst []byte) ([]byte, *sentPacket) {
	e.rec.skip(e.cfg.Random)
	dst = putNumber(dst, e.rec.next())
	p := e.rec.fresh()
	if len(e.received) > 0 && (e.unacked > 0 || e.ackAt != 0 || e.rec.probes > 0 || e.MayTell()) {
		n := len(e.received)
		a := ack{delay: now - e.newestAt, limit: e.recv.limit(), ranges: e.received}
		dst = a.appendAck(dst, e.mtu.size()-e.cfg.Overhead-len(dst)-maxMarkBytes)
		e.unacked, e.ackAt, e.told = 0, 0, a.limit
		p.acks = e.received[n-1].end
		p.tells = e.tellsMarks()
	}
	return dst, p
}

// tellsMarks reports whether an acknowledgement is to tell with which marks packets came.
func (e *Engine) tellsMarks() bool {
	n := e.came.sum()
	return n > e.cameHere && (n <= e.cameHere+marksAtFirst || n >= e.cameTold.sum()+marksAgain || e.came.ce > e.cameTold.ce)
}

// build makes a packet with as much of the records as fits. ping: it asks for an acknowledgement even if there are
// none.
func (e *Engine) build(now time.Duration, dst []byte, ping bool) []byte {
	dst, p := e.begin(now, dst)
	before := len(dst)
	room := e.mtu.size() - e.cfg.Overhead
	if p.tells {
		room -= maxMarkBytes
	}
	lossy := e.lossy()
	if lossy {
		room = min(room, e.mtu.size()-e.cfg.Overhead-repairHead+before)
	}
	dst, p.parts = e.send.fill(dst, room, p.parts, !p.tells)
	if lossy && len(dst) > before {
		e.repairs.noted(now, e.rec.rtt.smoothed/8, e.rec.next(), dst[before:])
	}
	empty := len(dst) == before
	missed := e.rec.probes > 0 || e.rec.losses.some(e.rec.next())
	if p.pings = empty && ping || missed && !empty && len(dst) < room; p.pings {
		dst = append(dst, framePing)
	}
	if !p.tells && len(dst) > before && len(dst) < room && room-len(dst) < minPart+maxHead && e.send.waiting() {
		dst = append(dst, make([]byte, room-len(dst))...) // frames of padding: packets of one length leave together
	}
	p.eliciting = len(dst) > before
	return e.leave(now, dst, p)
}

func (e *Engine) buildAck(now time.Duration, dst []byte) []byte {
	dst, p := e.begin(now, dst)
	return e.leave(now, dst, p)
}

// buildProbe makes a packet of a size that is not known to pass.
func (e *Engine) buildProbe(now time.Duration, dst []byte, size int) []byte {
	dst, p := e.begin(now, dst)
	dst = append(dst, framePing)
	for len(dst) < size-e.cfg.Overhead {
		dst = append(dst, framePadding)
	}
	p.probe, p.pings, p.eliciting, p.tells = true, true, true, false
	e.mtu.sent()
	return e.leave(now, dst, p)
}

// buildRepair makes a packet that repairs packets which have left.
func (e *Engine) buildRepair(now time.Duration, dst []byte) []byte {
	e.rec.skip(e.cfg.Random)
	dst = e.repairs.next(putNumber(dst, e.rec.next()))
	p := e.rec.fresh()
	p.paced = true
	return e.leave(now, dst, p)
}

// leave notes a packet that leaves, and when the next one may, and returns it with the count of marks, if it tells one.
func (e *Engine) leave(now time.Duration, packet []byte, p *sentPacket) []byte {
	if p.tells {
		packet = e.came.appendMarks(packet)
		e.cameTold = e.came
	}
	p.length, p.size = len(packet), len(packet)+e.cfg.Overhead
	// At first the other end may not be able to say with which mark a packet came: it keeps packets that overtake its
	// handshake.
	e.marks = p.eliciting && e.rec.rtt.measured && e.marking.marks()
	if p.marked = e.marks; p.marked {
		e.marking.left(now, 3*e.rec.probeAfter())
	}
	if p.eliciting || p.paced {
		per := time.Duration(float64(p.size) / e.bbr.pacing * 1e9)
		burst := time.Millisecond + time.Duration(float64(e.bbr.quantum())/e.bbr.pacing*1e9)
		e.paceAt = max(e.paceAt, now-burst) + per
	}
	e.rec.add(now, p)
	if len(e.rec.sent) > maxSent && e.err == nil { // an end that receives packets acknowledges some of them
		e.err = fmt.Errorf("%w: %d packets have left since the oldest unacknowledged one", ErrPacket, maxSent)
	}
	return packet
}
