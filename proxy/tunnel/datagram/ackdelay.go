package datagram

import "time"

// How long an end may wait before it acknowledges, which the other end must know so that it sends no probe too soon. An
// acknowledgement that waits often finds a packet of data to leave with, and costs a packet of its own otherwise: 75
// bytes with all headers. In a job with small messages one packet in four was an acknowledgement alone.
//
// A packet that is not full shows that its sender has nothing more to send, so that neither its window nor its rate
// waits for the acknowledgement, which may therefore wait for longDelay. RFC 9000, section 18.2, has it for all
// packets. Of full packets in a row fullRow may be all that the smallest window has room for: shortDelay. The same is
// due to a packet with a ping frame, which a sender adds where the path has lost packets, since the last packet of a
// burst is missed only when a probe asks for it. The first packets of a path do not wait at all: by them the other end
// measures the round trip.
const (
	shortDelay = 5 * time.Millisecond
	longDelay  = 25 * time.Millisecond
	firstCame  = 8                  // packets, the first of a path
	fullRow    = minPipePackets - 1 // packets: one fewer than fit the smallest window, in which a smaller packet may be too

	// fullLength is how many bytes a packet has that may be full: a datagram of 1,200 bytes at least, without the layer
	// below, the head of a repair, and the bytes that build leaves free.
	fullLength = 1000
)

// An ackDelay says how long the end to which packets come may wait before it acknowledges. Both ends keep one, of the
// packets of the same direction.
type ackDelay struct {
	full int // packets in a row
}

// after returns how long the acknowledgement of the next packet may wait. pings: it has a ping frame.
func (d *ackDelay) after(length int, pings bool) time.Duration {
	if length < fullLength {
		d.full = 0
	} else if d.full < fullRow {
		d.full++
	}
	if d.full == fullRow || pings {
		return shortDelay
	}
	return longDelay
}

// Of two packets lost within lossSpan numbers the path is said to lose packets, for the next lossMemory numbers.
const (
	lossSpan   = 512
	lossMemory = 4096
)

// losses tells whether a path has lost packets of late. The zero losses has seen none.
type losses struct {
	last  uint64 // one more than the number of the last one
	until uint64 // the number from which on the path no longer counts as losing
}

// lost notes that a packet was lost, in about the order of their numbers.
func (l *losses) lost(number uint64) {
	if l.last != 0 && number+1 < l.last+lossSpan {
		l.until = number + lossMemory
	}
	l.last = number + 1
}

// some reports whether the path loses packets, by the number of the next one.
func (l *losses) some(next uint64) bool { return next < l.until }
