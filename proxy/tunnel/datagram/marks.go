package datagram

import (
	"encoding/binary"
	"time"
)

// A Mark is the field of an IP header by which a router says that it is congested, without a loss: RFC 3168, section 5.
type Mark uint8

const (
	Unmarkable Mark = iota // Not-ECT: the sender understands no marks
	ECT1                   // an Engine sends none
	ECT0                   // a router may change it to CE
	CE                     // a router was congested
)

// A markCount says how many packets have come with each Mark but Unmarkable.
type markCount struct{ ect0, ect1, ce uint64 }

func (c *markCount) add(m Mark) {
	switch m {
	case ECT1:
		c.ect1++
	case ECT0:
		c.ect0++
	case CE:
		c.ce++
	}
}

func (c *markCount) sum() uint64 { return c.ect0 + c.ect1 + c.ce }

const (
	// trailerMarks begins the bytes behind a padding frame that tell a markCount. Earlier versions take them for
	// padding.
	trailerMarks = 1
	maxMarkBytes = 2 + 3*7

	// The count is told with each acknowledgement until marksAtFirst packets have come on a path with marks; then at
	// once where a router was congested, and else once for marksAgain packets: it takes bytes where packets are small.
	marksAtFirst = 32
	marksAgain   = 16

	testedPackets = 10  // leave as ECT0 before it is known whether the path carries marks: RFC 9000, section 13.4.2.2
	marksSilence  = 256 // such packets may be acknowledged without a word on marks
)

// appendMarks appends a count, which ends the packet.
func (c *markCount) appendMarks(dst []byte) []byte {
	dst = append(dst, framePadding, trailerMarks)
	for _, n := range [...]uint64{c.ect0, c.ect1, c.ce} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// marks reads the bytes behind a padding frame. ok: they tell a count.
func (r *packetReader) marks(c *markCount) (ok bool) {
	if len(r.rest) == 0 || r.rest[0] != trailerMarks {
		return false
	}
	r.byte()
	c.ect0, c.ect1, c.ce = r.uvarint(1<<48), r.uvarint(1<<48), r.uvarint(1<<48)
	return r.err == nil
}

type markState uint8

const (
	marksTested  markState = iota // packets leave as ECT0, as a test of the path
	marksUnknown                  // enough have left, and nothing is known
	marksCapable                  // the path carries marks
	marksFailed                   // it does not, or the other end does not tell of them
)

// A marking decides whether packets that ask for an acknowledgement leave as ECT0, since the path carries marks. The
// method is that of RFC 9000, section 13.4.2 and appendix A.4.
type marking struct {
	state  markState
	sent   uint64        // packets that have left as ECT0, on all paths
	path   uint64        // of these, on this path
	since  time.Duration // when the first of them left on this path
	lost   uint64        // on this path
	acked  uint64        // on this path
	intact uint64        // came as ECT0, on this path
	untold uint64        // acknowledged since the other end last told its count
	told   markCount     // that count
	before uint64        // its sum when this path began
}

// marks reports whether packets leave as ECT0.
func (m *marking) marks() bool { return m.state == marksTested || m.state == marksCapable }

// left notes that a packet leaves as ECT0. patience is for how long packets may be tested.
func (m *marking) left(now, patience time.Duration) {
	if m.path == 0 {
		m.since = now
	}
	m.sent++
	m.path++
	if m.state == marksTested && (m.path >= testedPackets || now-m.since > patience) {
		m.state = marksUnknown
	}
}

// moved begins anew, since packets take another path.
func (m *marking) moved() { *m = marking{sent: m.sent, told: m.told, before: m.told.sum()} }

// abandoned notes that nobody will hear of an ECT0 packet, since the connection moved to another port: it tells nothing
// of the path.
func (m *marking) abandoned() {
	if m.path--; m.path == 0 && m.state == marksUnknown {
		m.state = marksTested
	}
}

// dropped notes that an ECT0 packet was declared lost. Some paths lose them all.
func (m *marking) dropped() {
	m.lost++
	if m.state == marksUnknown && m.acked == 0 && m.lost >= m.path {
		m.state = marksFailed
	}
}

// arrived notes that ECT0 packets were acknowledged.
func (m *marking) arrived(packets uint64) {
	m.acked += packets
	if m.untold += packets; m.untold > marksSilence {
		m.state = marksFailed
	}
}

// tell takes a count, and returns how many packets more have met congestion. The count must come with an
// acknowledgement of a packet later than all before: else it may be an old one.
func (m *marking) tell(c markCount) (congested uint64) {
	ect0, ce := c.ect0-m.told.ect0, c.ce-m.told.ce
	if c.ect0 < m.told.ect0 || c.ce < m.told.ce || c.ect1 > 0 || c.sum() > m.sent || c.sum() < m.before+m.acked {
		m.state = marksFailed // the path changes marks, or wipes them out
		return 0
	}
	m.intact += ect0
	m.told, m.untold = c, 0
	switch {
	case m.state == marksFailed:
		return 0
	case m.state == marksUnknown && m.acked+m.lost >= m.path:
		if m.state = marksCapable; m.intact == 0 { // all say CE
			m.state = marksFailed
		}
	}
	return ce
}
