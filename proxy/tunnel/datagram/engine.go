package datagram

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Config describes an Engine.
type Config struct {
	Overhead    int // bytes that the layer below adds to each packet: with them it is a datagram
	MaxDatagram int // bytes of the largest datagram; at least 1,200
	// Window is how many bytes of records may be held here before they are taken, and how many sent ones until they
	// have arrived whole, whatever the other end allows. At least MaxRecord.
	Window int
	Random *rand.Rand // decides when the path is probed, so that flows do not probe at once

	// Make returns memory for a record of n bytes that comes; the bytes in it do not matter, and Free takes back a
	// record that was queued and has arrived. Where Make is nil the Engine allocates, and where Free is nil the caller
	// keeps the buffers that it has queued.
	Make func(n int) []byte
	Free func(record []byte)
}

// An Engine is one end of a connection. Times are since an epoch of the caller's, must not go back and must be above 0.
// Its methods must not be called concurrently.
type Engine struct {
	cfg  Config
	send sending
	recv receiving
	rec  recovery
	bbr  *bbr
	mtu  mtuSearch

	paceAt    time.Duration // when the next packet may leave
	restAt    time.Duration // until then packets gather, to leave together: see rest
	limited   bool          // the window has held a packet back since the last acknowledgement
	received  spans         // numbers of packets
	floor     uint64        // packets below are doubles
	newestAt  time.Duration // when the largest one came
	dataAt    time.Duration // when a part of a record last came
	delays    ackDelay      // of the packets that came
	unacked   int           // packets that ask for an acknowledgement and have none
	unackedAt time.Duration // when the first of them came
	firstHere int           // packets that asked for one on this path, up to firstCame
	ackAt     time.Duration // when one must leave at the latest; 0: none is due
	told      uint64        // limit, as last told
	ack       ack           // scratch
	came      markCount     // of the packets that came
	cameTold  markCount     // as last told
	cameHere  uint64        // sum of came when this path began
	marking   marking       // of the packets that leave
	repairs   repairing     // of the packets that leave
	recent    repairRing    // packets that came, since the first repair did
	repaired  bool          // one has come
	mended    uint64        // packets that were made from one
	outcome   outcome       // of packets that have left
	marks     bool          // see Marks
	err       error
}

// New returns an Engine.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg}
	e.mtu.largest = cfg.MaxDatagram
	e.bbr = newBBR(e.mtu.size(), cfg.Random)
	e.rec.threshold = packetThreshold
	e.recv = receiving{next: 1, records: map[uint64]*inRecord{}, memory: cfg.Make}
	if e.recv.memory == nil {
		e.recv.memory = func(n int) []byte { return make([]byte, n) }
	}
	e.send.free = cfg.Free
	e.told = uint64(cfg.Window)
	e.send.limit = MaxRecord // until the other end says more
	e.Widen(cfg.Window)
	return e
}

// Widen sets Config.Window to a larger number of bytes.
func (e *Engine) Widen(window int) {
	e.cfg.Window = window
	e.recv.window, e.send.window = window, window
}

// Queue has a record of 1 to MaxRecord bytes leave behind the records queued before. The Engine retains it. Nothing may
// follow End.
func (e *Engine) Queue(record []byte, order Order) {
	if len(record) == 0 || len(record) > MaxRecord || e.send.ended {
		panic(fmt.Sprintf("datagram: record of %d bytes, ended %v", len(record), e.send.ended))
	}
	e.send.queue(record, order)
}

// Unsent returns how many queued bytes have never left.
func (e *Engine) Unsent() int { return e.send.unsent }

// Unacknowledged reports whether queued records have not arrived.
func (e *Engine) Unacknowledged() bool { return len(e.send.records) > 0 }

// Take returns the next record that has come; nil: none is there. The caller owns it.
func (e *Engine) Take() []byte { return e.recv.take() }

// Ended reports whether the other end has said that nothing follows, and all was taken.
func (e *Engine) Ended() bool { return e.recv.ended && len(e.recv.ready) == 0 }

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
	number := r.number()
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
		switch kind {
		case framePadding:
			news.toldMarks = r.marks(&news.marks)
			if p, ok := r.repair(); ok && r.err == nil {
				r.err = e.mend(&p)
			}
			break frames
		case framePing:
			pings = true
		case frameAck:
			if acked { // each costs a look at the packets that have left
				r.fail("a second ack frame")
				break frames
			}
			acked = true
			if r.ack(&e.ack, e.rec.next()); r.err == nil {
				news, r.err = e.acknowledge(now)
			}
		case frameFragment:
			if fragments == nil {
				fragments = packet[len(packet)-len(r.rest)-1:]
			}
			if f := r.fragment(); r.err == nil {
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
		if kind := r.byte(); kind != frameFragment {
			r.fail("a repair with a frame of kind %d", kind)
			break
		}
		if f := r.fragment(); r.err == nil {
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

// note remembers a packet of so many bytes that came, for acknowledgements. pings: it has a ping frame.
func (e *Engine) note(now time.Duration, number uint64, length int, eliciting, pings bool) {
	next := uint64(0)
	if n := len(e.received); n > 0 {
		next = e.received[n-1].end
	}
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

// An outcome counts packets that were lost, and notices when they are very many for long: a receiver that its host does
// not let run loses as many for a moment.
type outcome struct {
	packets, lost int
	since         time.Duration // when very many began to be lost; 0: they are not
	heavy         uint64        // times that it has noticed
}

// Of each outcomePackets more than one in outcomeHeavy is lost, for outcomeFor.
const (
	outcomePackets = 32
	outcomeHeavy   = 4
	outcomeFor     = time.Second
)

func (o *outcome) count(now time.Duration, lost bool) {
	o.packets++
	if lost {
		o.lost++
	}
	if o.packets < outcomePackets {
		return
	}
	switch {
	case o.lost <= outcomePackets/outcomeHeavy:
		o.since = 0
	case o.since == 0:
		o.since = now
	case now-o.since >= outcomeFor:
		o.heavy++
		o.since = now
	}
	o.packets, o.lost = 0, 0
}

// Heavy returns a number that grows whenever more than a quarter of the packets is lost for long, or probes stay
// without an answer. Beside congestion the way in which packets leave may be the cause.
func (e *Engine) Heavy() uint64 { return e.outcome.heavy }

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

// Moved tells the Engine that the connection goes on over another path: packets under way are lost. far: the engine
// forgets the old path (RFC 9000, section 9.4); else only a port has changed.
func (e *Engine) Moved(now time.Duration, far bool) {
	e.rec.abandon(func(p *sentPacket) {
		for _, q := range p.parts {
			e.send.lost(q)
		}
		if p.probe {
			e.mtu.flying = false
		}
		if p.marked {
			e.marking.abandoned()
		}
	})
	if far {
		e.mtu = mtuSearch{largest: e.mtu.largest}
		e.bbr = newBBR(e.mtu.size(), e.cfg.Random)
		e.rec.rtt = rtt{}
		e.marking.moved()
		e.cameHere, e.firstHere = e.came.sum(), 0
	}
	e.paceAt, e.restAt = now, now
	e.Check()
}

// Marks reports whether the packet that Next has returned must leave as ECT0, and not as Unmarkable.
func (e *Engine) Marks() bool { return e.marks }

// Check has a packet leave that asks for an acknowledgement.
func (e *Engine) Check() { e.rec.probesDue = max(e.rec.probesDue, 1) }

// HeardData returns when data last came; 0: none has.
func (e *Engine) HeardData() time.Duration { return e.dataAt }

// MayTell reports whether the other end should hear of the limit: much was taken since it last did.
func (e *Engine) MayTell() bool { return e.recv.limit()-e.told >= uint64(e.cfg.Window/4) }

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
	dst, p.parts = e.send.fill(dst, room, p.parts)
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

// A State says how a connection is.
type State struct {
	RTT      time.Duration // smoothed; 0: not measured
	MinRTT   time.Duration
	Patience time.Duration // an acknowledgement should come within it
	Rate     float64       // bytes per second that leave at most
	Window   int           // bytes that may be under way
	InFlight int           // bytes that are
	Datagram int           // bytes of a full datagram
	Lost     uint64        // bytes declared lost
	Arrived  uint64        // bytes acknowledged
	Marks    bool          // the path carries marks of congestion
	Marked   uint64        // packets that arrived with one
	Mended   uint64        // packets that did not come, and were made from a repair
}

// State returns how the connection is.
func (e *Engine) State() State {
	s := State{RTT: e.rec.rtt.smoothed, MinRTT: e.rec.rtt.min, Patience: e.rec.probeAfter(), Rate: e.bbr.pacing, Window: e.bbr.cwnd,
		InFlight: e.rec.inflight, Datagram: e.mtu.size(), Lost: e.rec.rate.lost - e.rec.rate.marked, Arrived: e.rec.rate.delivered,
		Marks: e.marking.state == marksCapable, Marked: e.marking.told.ce, Mended: e.mended}
	return s
}
