package tunnel

import "time"

// Gathering of small messages. A packet costs 74 bytes of headers of IP, TCP and TLS, and often an acknowledgement of
// 52, whatever it carries; the messages of a parameter server are a few dozen bytes each, and come by the dozen. So the
// express carrier sends at most one packet that is not full in each share of the round trip: bytes that come within
// that time of the last packet gather until it is over or until they fill a packet. A message that comes later than
// that, as every one that waits for an answer does, leaves at once, by the goroutine that wrote it. This is Nagle's
// rule (RFC 896) with a bound: bytes never wait for an acknowledgement.
//
// Messages gather only where it saves packets (inflow). Where a user writes a few side by side and then waits for
// answers, as the ranks of a ring do with small sums, each exchange would take an eighth of the round trip longer and
// save no more than the headers of these few messages.
//
// Credit, resets and records about the carrier itself do not wait, and take the gathered messages along.

// gathers reports whether the records that there are for c wait for more, and then sees to it that they leave in time.
// The session's lock is held.
func (s *session) gathers(c *carrier) bool {
	if s.gather == 0 || !s.inflow.goesOn() || s.urgent.n > 0 || s.allow || c.pongDue || c.pingDue || c.goAwayDue || c.leaveDue || c.leaving || s.small.n+s.dones.n == 0 {
		return false
	}
	express, only := s.express()
	if c != express || only && s.bulk.n > 0 {
		return false
	}
	wait := s.gather - time.Since(c.sentAt)
	if wait <= 0 || s.fillPacket() {
		return false
	}
	c.gathering.set(wait)
	return true
}

// gathering reports whether records gather now. The session's lock is held.
func (s *session) gathering() bool {
	express, _ := s.express()
	return express != nil && express.gathering.isSet
}

// fillPacket reports whether the small records that wait fill a packet.
func (s *session) fillPacket() bool {
	head := headerLen
	if s.short {
		head = shortData
	}
	n := s.dones.n * head
	for i := 0; i < s.small.n && n < fullPacket; i++ {
		st := s.small.at(i)
		n += head + st.unsent
	}
	return n >= fullPacket
}
