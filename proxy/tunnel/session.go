package tunnel

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A session is the state that two sides share while both live: the streams, and the carriers that are attached
// now. It is fresh until a peer's incarnation is known, and dead once err is set. One lock guards it all,
// streams included; nobody holds it while a byte is copied that is not among 16 KiB, or read or written.
type session struct {
	peer *peer
	mem  *account // the peer's
	mine incarnation

	mu sync.Mutex

	theirs     incarnation // zero: fresh
	even       bool        // the ids of streams that this side opens
	maxBody    int         // of DATA to the peer
	sendWindow uint64      // credit that each stream begins with, to the peer
	codecs     []string    // of the peer
	pad        int         // Config.Pad, if the peer takes PAD records
	err        error       // why it is dead

	carriers    []*carrier // by slot, in one slot by generation
	suspended   time.Time  // when the last one went
	generations [maxSlots]uint64
	vacant      [maxSlots]time.Time // when the slot was last left
	accepted    bool                // the peer has dialed: it can

	streams map[uint64]*Stream
	emptied chan struct{} // closed when the last stream goes; nil: nobody waits

	opened    uint64    // streams that this side has opened
	openLimit uint64    // how many the peer allows
	openCond  sync.Cond // openLimit has grown, or goneAway or err is set
	goneAway  bool      // the peer takes no new streams
	draining  bool      // neither do we

	seen     idSet  // of the peer's streams
	finished uint64 // of the peer's streams
	allowed  uint64 // of the peer's streams: the limit in the last WINDOW
	allow    bool   // WINDOW for stream 0 is to be sent

	// The queues from which carriers send; see schedule.go.
	small, bulk  queue[*Stream]
	urgent, lazy queue[*Stream]
	dones        queue[uint64]
	riders       queue[*Stream] // with bytes that leave with the next packet
	ridersAt     time.Time      // when the first of them came
	lazyTimer    *time.Timer
	lazyArmed    bool

	rtts    [8]time.Duration // the last PINGs; 0: none
	rttNext int
	gather  time.Duration // see gather.go
	inflow  inflow        // of this side's small messages
	ackTime time.Duration // for how long a WINDOW for few bytes may wait
	influx  influx
	meter   meter
	outage  outage
	rates   [10]float64 // of the last seconds
}

func newSession(p *peer) *session {
	s := &session{
		peer:    p,
		mem:     &p.mem,
		mine:    newIncarnation(),
		streams: make(map[uint64]*Stream),
		allowed: uint64(p.e.cfg.Streams),
	}
	s.openCond.L = &s.mu
	return s
}

// establish makes a fresh session live. It is called with the peer's lock held.
func (s *session) establish(h *hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := bytes.Compare(s.mine[:], h.mine[:])
	if order == 0 {
		return fmt.Errorf("the other end is this one: it dialed itself")
	}
	s.theirs = h.mine
	s.even = order < 0
	s.maxBody = min(maxBody, h.maxBody)
	s.sendWindow = uint64(h.window)
	s.openLimit = uint64(h.streams)
	s.codecs = h.codecs
	if h.pads {
		s.pad = s.peer.e.cfg.Pad
	} else if s.peer.e.cfg.Pad > 0 {
		s.peer.e.cfg.Logger.Warn("the peer's version takes no padding: sizes are not hidden from observers of the network; upgrade it", "peer", s.peer.name)
	}
	s.suspended = time.Now()
	s.draining = s.peer.e.draining.Load()
	s.peer.sessions.Add(1)
	s.peer.e.sessionUp(s.peer)
	return nil
}

// attach adds a carrier; false: the session is dead, or has too many that will not leave. Of two carriers in one slot the older one
// retires, or is ended at once if the dialer says that it is dead. Both sides see the same order.
func (s *session) attach(c *carrier) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.peer.e.closing.Load() || len(s.carriers) >= 2*maxSlots {
		return false
	}
	c.session = s
	c.cond.L = &s.mu
	c.padder.step = s.pad
	c.heard = time.Now()
	c.pinged = c.heard
	c.pingDue = true
	c.goAwayDue = s.draining
	s.generations[c.place.slot] = max(s.generations[c.place.slot], c.place.generation)
	s.accepted = s.accepted || !c.dialed
	at, found := slices.BinarySearchFunc(s.carriers, c, (*carrier).compare)
	if found {
		return false
	}
	s.carriers = slices.Insert(s.carriers, at, c)
	for i, o := range slices.Clone(s.carriers) {
		switch {
		case o == c || o.place.slot != c.place.slot:
		case i > at:
			c.leave()
		case c.place.replace && o.place.generation < c.place.generation:
			o.kill(fmt.Errorf("the peer has replaced it"))
		default:
			o.leave()
		}
	}
	s.peer.e.carrierUp(s.peer, c)
	s.wakeAll()
	return true
}

// detach removes a carrier that is dead. Chunks that left on it and are not acknowledged leave again on another.
func (s *session) detach(c *carrier) {
	i := slices.Index(s.carriers, c)
	if i < 0 {
		return
	}
	s.carriers = slices.Delete(s.carriers, i, i+1)
	c.count(c.link.State().Network)
	s.vacant[c.place.slot] = time.Now()
	for _, id := range c.doneUnsure {
		s.dones.push(id)
	}
	for _, id := range c.doneInPing {
		s.dones.push(id)
	}
	for _, st := range s.streams {
		if c.flight > 0 {
			st.requeue(c)
		}
		s.update(st, true) // the WINDOW or RESET that it was sent may be lost
	}
	s.allow = true
	if len(s.carriers) == 0 {
		s.suspended = time.Now()
		if s.err == nil {
			s.outageBegins(s.suspended)
		}
	}
	s.outage.lost++ // of no effect where there is none
	s.wakeAll()
	s.peer.kick(int(c.place.slot))
}

// fail ends the session: all streams are lost. text, if not empty, goes to the peer as the reason, so that it
// need not wait out the resume time. The peer gets a fresh session in its place.
func (s *session) fail(reason error, text string) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = fmt.Errorf("%w: %s: %w", ErrSessionLost, s.peer.name, reason)
	lived, streams, announced := s.theirs != incarnation{}, len(s.streams), s.goneAway
	for _, st := range s.streams {
		st.lose(s.err)
	}
	clear(s.streams)
	s.notifyEmpty()
	s.openCond.Broadcast()
	for _, c := range slices.Clone(s.carriers) {
		if text == "" {
			c.kill(s.err)
		} else {
			c.finish(text)
		}
	}
	if s.lazyTimer != nil {
		s.lazyTimer.Stop()
	}
	s.mu.Unlock()
	s.peer.replace(s)
	if lived {
		s.peer.e.sessionLost(s.peer, reason, streams, announced)
	}
}

// notifyEmpty wakes the callers that wait until no stream is left.
func (s *session) notifyEmpty() {
	if s.emptied != nil && len(s.streams) == 0 {
		close(s.emptied)
		s.emptied = nil
	}
}

// remove takes a stream out that both sides are done with, and tells the peer so.
func (s *session) remove(st *Stream) {
	delete(s.streams, st.id)
	if !st.peerDone {
		s.dones.push(st.id)
		s.wakeControl()
	}
	if st.answering && !st.deciding {
		s.finishedOne()
	}
	s.notifyEmpty()
}

// finishedOne allows the peer another stream in place of one of its own that is over.
func (s *session) finishedOne() {
	s.finished++
	s.raise()
}

// raise raises the limit on the peer's streams, a good many at a time, by the number that are over. An id that is missing
// below keeps the limit from running away from it, and so do records that the peer takes too slowly:
// the queues hold no more than the limit allows streams.
func (s *session) raise() {
	untold := uint64(s.dones.n + s.urgent.n)
	streams := uint64(s.peer.e.cfg.Streams)
	limit := min(s.finished+streams-min(untold, s.finished+streams), s.seen.missing()+4*streams)
	if limit >= s.allowed+max(1, streams/4) {
		s.allowed = limit
		s.allow = true
		s.wakeControl()
	}
}

// drain takes no new streams from now on and tells the peer.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, c := range s.carriers {
		c.goAwayDue = true
	}
	s.openCond.Broadcast()
	s.wakeAll()
}

// empty returns a channel that is closed when there is no stream; nil: there is none now.
func (s *session) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return nil
	}
	if s.emptied == nil {
		s.emptied = make(chan struct{})
	}
	return s.emptied
}

func (s *session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// rtt returns the smallest of the last PINGs; 0: none.
func (s *session) rtt() (rtt time.Duration) {
	for _, r := range s.rtts {
		if r > 0 && (rtt == 0 || r < rtt) {
			rtt = r
		}
	}
	return rtt
}

func (s *session) addRTT(d time.Duration) {
	s.rtts[s.rttNext%len(s.rtts)] = max(d, 1)
	s.rttNext++
	rtt := s.rtt()
	s.peer.rtt.Store(int64(rtt))
	s.gather, s.ackTime = gatherTime(rtt), ackTime(rtt)
}
