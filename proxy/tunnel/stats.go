package tunnel

import (
	"time"
)

// Stats returns a snapshot of every configured peer, in the order of Config.Peers.
func (e *Endpoint) Stats() []PeerStats {
	var all []PeerStats
	for _, p := range e.list() {
		rtt, rate := p.path()
		st := PeerStats{
			Peer: p.name, RTT: rtt, Rate: rate,
			Sessions: p.sessions.Load(), Outages: p.outages.Load(), Replayed: p.replayed.Load(),
			Sent: p.sent.Load(), Received: p.received.Load(), Padding: p.padded.Load(),
		}
		s := p.session()
		s.mu.Lock()
		for _, c := range s.carriers {
			state := c.link.State()
			c.count(&p.far, state.Network)
			if state.Congestion == "bbr" {
				st.BBR++
			}
			if c.datagrams {
				st.Datagrams++
			}
			st.Links = append(st.Links, c.stats(&state))
		}
		st.Choice = p.chooser.current()
		st.Network = Traffic{p.networkSent.Load(), p.networkReceived.Load()}
		if s.outage.lasts() {
			st.Outage, st.RTT, st.Rate = max(time.Since(s.outage.began), 1), 0, 0
		}
		st.Unconfirmed = max(s.meter.flight, 0)
		st.Carriers, st.Session, st.Streams = len(s.carriers), s.theirs != incarnation{}, len(s.streams)
		st.Codecs, st.Draining = s.codecs, s.goneAway
		s.mu.Unlock()
		all = append(all, st)
	}
	return all
}

// stats describes a carrier whose Link has that state. The session's lock is held.
func (c *carrier) stats(state *LinkState) CarrierStats {
	s := CarrierStats{Carrier: c.kind, Congestion: state.Congestion, Age: time.Since(c.born), RTT: state.RTT, Loss: state.Loss, Backlog: state.Backlog,
		Network: state.Network, Leaving: c.leaving}
	if a := c.link.RemoteAddr(); a != nil {
		s.Remote = a.String()
	}
	return s
}

// PeerStats is a snapshot of the session with one peer; counters are since New.
type PeerStats struct {
	Peer      string
	Carriers  int           // attached now; 0 with Session: suspended
	BBR       int           // of these, the ones under BBR
	Datagrams int           // and the ones over datagrams
	Choice    Choice        // with Config.Carrier "auto"; else zero
	Session   bool          // there is one
	Outage    time.Duration // for which nothing has come back although bytes are under way, or there has been no carrier; 0: there is no outage
	Streams   int           // open now
	RTT       time.Duration // smallest of the last PINGs; 0: unknown, or an outage
	Rate      float64       // bytes per second at which bulk arrives at the peer, the highest of the last 10 s; 0: unknown, or an outage
	Codecs    []string      // the peer's list, which all callers share: it must not be changed
	Draining  bool          // the peer takes no new streams

	Sessions uint64 // begun
	Outages  uint64 // begun
	Replayed uint64 // bytes sent again after the loss of a carrier
	Sent     uint64 // bytes of streams handed to carriers, replays left out
	Received uint64 // bytes of streams taken from carriers, duplicates left out

	Unconfirmed int            // bytes of streams that have left and that the peer has not confirmed
	Links       []CarrierStats // of the carriers that are attached now

	Padding uint64  // bytes of padding sent, with their headers
	Network Traffic // of all carriers so far; zero: not known
}

// CarrierStats is a snapshot of one carrier.
type CarrierStats struct {
	Carrier    string        // its kind: CarrierTLS or CarrierDTLS
	Congestion string        // name of the congestion control; "": not known
	Remote     string        // address of the other end
	Age        time.Duration // since it came
	RTT        time.Duration // smoothed; 0: not known
	Loss       float64       // part of the packets that were lost so far; 0 where that is not known
	Backlog    uint64        // bytes that have left this process and that the other host has not confirmed
	Network    Traffic       // of this carrier
	Leaving    bool          // another one takes its place
}
