package tunnel

import "time"

// How long small messages gather (gather.go).
const (
	gatherShare = 8                      // of the round trip, one part is the time to gather
	maxGather   = 4 * time.Millisecond   // whatever the round trip: by then packets are few
	minGather   = 500 * time.Microsecond // less is not gathered at all: the runtime's timers may be a millisecond late
	fullPacket  = 1300                   // bytes of records that fill a packet, about
	gatherSize  = 2 << 10                // bytes of the first chunk of a stream whose bytes gather, so that few records leave
)

// gatherTime returns for how long a carrier gathers after a packet, by the round trip.
func gatherTime(rtt time.Duration) time.Duration {
	if g := min(rtt/gatherShare, maxGather); g >= minGather {
		return g
	}
	return 0
}

// An inflow tells whether small messages are worth waiting for. It cuts time into windows of the time to gather: one
// begins with the first message after the end of the last one. The messages of a window wait in vain if they are few
// and come side by side: users write some and then wait for answers, as Gloo does four times in each all-reduce. They
// do not if one comes later, or if many come side by side, as a parameter server's pushes, which then share packets.
// The zero inflow has seen no message.
type inflow struct {
	since time.Time // when the window began
	early int       // messages after its first one that have come side by side with it
	late  bool      // one has come later
	vain  float64   // share of windows whose messages would have waited in vain, of the last vainWindows about in which any would have waited
}

const (
	vainWindows = 8
	maxVain     = 0.5                    // up to which messages gather
	vainFew     = 5                      // early messages at most; JAX's all-reduces over Gloo have 1 to 4
	sideBySide  = 250 * time.Microsecond // in which a busy host writes a few messages,
	sideShare   = 4                      // or one part of a window, if that is more
)

// add notes a message. window is the time to gather.
func (f *inflow) add(now time.Time, window time.Duration) {
	if age := now.Sub(f.since); age < window {
		if age >= max(sideBySide, window/sideShare) {
			f.late = true
		} else {
			f.early++
		}
		return
	}
	switch {
	case f.late || f.early > vainFew:
		f.vain -= f.vain / vainWindows
	case f.early > 0:
		f.vain += (1 - f.vain) / vainWindows
	}
	*f = inflow{since: now, vain: f.vain}
}

// goesOn reports whether messages that wait are likely to meet others.
func (f *inflow) goesOn() bool { return f.vain <= maxVain }

// A WINDOW that says nothing urgent waits for two round trips within these bounds; for the lower bound only where many
// bytes come, since the peer keeps them and measures by their acknowledgements how fast they arrive, and for the end of
// a direction.
const (
	ackDelay = 4 * time.Millisecond
	maxAck   = 25 * time.Millisecond
	ackFew   = 32 << 10              // bytes of all streams within ackSpan or a little more
	ackSpan  = 50 * time.Millisecond // twice maxAck, so that the last bytes of many are still among them
)

// ackTime returns for how long a record that nobody waits for may wait for a packet to ride with, by the round trip.
func ackTime(rtt time.Duration) time.Duration { return min(max(2*rtt, ackDelay), maxAck) }

// An influx counts the bytes of DATA that come.
type influx struct {
	since  time.Time
	before int // bytes in the span before since
	bytes  int // since
}

// add notes n bytes.
func (f *influx) add(now time.Time, n int) {
	if age := now.Sub(f.since); age >= ackSpan {
		if f.before = f.bytes; age >= 2*ackSpan {
			f.before = 0
		}
		f.since, f.bytes = now, 0
	}
	f.bytes += n
}

// few reports whether few bytes have come of late.
func (f *influx) few(now time.Time) bool {
	f.add(now, 0)
	return f.before+f.bytes < ackFew
}
