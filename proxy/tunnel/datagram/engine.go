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

// Heavy returns a number that grows whenever more than a quarter of the packets is lost for long, or probes stay
// without an answer. Beside congestion the way in which packets leave may be the cause.
func (e *Engine) Heavy() uint64 { return e.outcome.heavy }

// MayTell reports whether the other end should hear of the limit: much was taken since it last did.
func (e *Engine) MayTell() bool { return e.recv.limit()-e.told >= uint64(e.cfg.Window/4) }

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
