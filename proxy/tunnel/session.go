package tunnel

import (
	"sync"
	"time"
)

// A session is the state that two sides share while both live: the streams, and the carriers that are attached
// now. It is fresh until a peer's incarnation is known, and dead once err is set. One lock guards it all,
// streams included. It is never held during a read or a write, nor while more than 16 KiB are copied.
type session struct {
	near *near
	far  *far
	mem  *account // the peer's
	mine incarnation

	mu sessionLock

	theirs     incarnation // zero: fresh
	even       bool        // the ids of streams that this side opens
	maxBody    int         // of DATA to the peer
	sendWindow uint64      // credit that each stream begins with, to the peer
	codecs     []string    // of the peer
	short      bool        // the peer takes short headers
	pad        int         // Config.Pad, if the peer takes PAD records
	err        error       // why it is dead

	carriers    []*carrier // by slot, in one slot by generation
	suspended   time.Time  // when the last one went
	generations [maxSlots]uint64
	vacant      [maxSlots]time.Time // when the slot was last left
	accepted    bool                // the peer has dialed: it can

	streams map[uint64]*stream
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
	small, bulk  queue[*stream]
	urgent, lazy queue[*stream]
	dones        queue[uint64]
	riders       queue[*stream] // with bytes that leave with the next packet
	ridersAt     time.Time      // when the first of them came
	lazyAlarm    alarm          // rings for updateLazily

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
	s.far.rtt.Store(int64(rtt))
	s.gather, s.ackTime = gatherTime(rtt), ackTime(rtt)
}

// known returns the peer's incarnation; zero: the session is fresh.
func (s *session) known() incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.theirs
}

// lives reports whether the peer's incarnation is known, and the session has not failed.
func (s *session) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.theirs != incarnation{} && s.err == nil
}

func (s *session) newStream(id uint64) *stream {
	st := &stream{id: id}
	st.limit = s.sendWindow
	st.window = uint64(s.near.window)
	st.granted = st.window
	st.finAt, st.final = noEnd, noEnd
	st.sendCond.L, st.recvCond.L = &s.mu, &s.mu
	s.streams[id] = st
	return st
}

// express returns the carrier for small chunks, and whether it is the only one; nil: none.
func (s *session) express() (first *carrier, only bool) {
	n := 0
	for _, c := range s.carriers {
		if !c.leaving && c.end == nil {
			if n++; first == nil {
				first = c
			}
		}
	}
	return first, n == 1
}

// waiting returns one carrier that waits: for small chunks the express if it is one, for others any but it; nil: none
// does.
func (s *session) waiting(small bool) *carrier {
	express, only := s.express()
	if express == nil {
		return nil
	}
	switch {
	case (small || only) && express.idle:
		return express
	case small && !express.flushing.Load():
		return nil // it will look before it waits
	}
	for _, c := range s.carriers {
		if c != express && c.idle && !c.leaving {
			return c
		}
	}
	return nil
}

// wakeControl wakes a carrier for records about streams.
func (s *session) wakeControl() {
	if express, _ := s.express(); express != nil {
		express.wake()
	}
}

func (s *session) wakeAll() {
	for _, c := range s.carriers {
		c.wake()
	}
}
