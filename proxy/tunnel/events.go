package tunnel

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// Events are callbacks for counters: they are told of every change of a session. They are called with locks held: they
// must return at once and call nothing of this package. nil ones are left out.
type Events struct {
	CarrierUp     func(peer string)
	CarrierDown   func(peer string, err error)    // lost, not retired in order
	SessionUp     func(peer string)               // a new session, without streams yet
	SessionLost   func(peer string, reason error) // all its streams were reset, but not by Close
	CarrierFailed func(peer string, err error)    // a dial or handshake; peer is "" while it is not known
}

// A reporter writes the changes of sessions into the log and tells Events of them.
type reporter struct {
	log    *slog.Logger
	events Events
}

func (r *reporter) carrierUp(peer string, slot uint8, dialed bool, link Link) {
	r.log.Debug("carrier up", "peer", peer, "slot", slot, "address", link.RemoteAddr(), "dialed", dialed, "congestion", link.State().Congestion)
	if f := r.events.CarrierUp; f != nil {
		f(peer)
	}
}

// carrierDown is called when a carrier was lost; not when it has left in order or ended with its session.
func (r *reporter) carrierDown(peer string, slot uint8, lived time.Duration, address net.Addr, err error) {
	r.log.Info("carrier lost", "peer", peer, "slot", slot, "address", address, "lived", lived.Round(time.Millisecond), "err", err)
	if f := r.events.CarrierDown; f != nil {
		f(peer, err)
	}
}

// carrierFailed is called when a dial or a handshake has failed; again: like the last time, which the log need not
// repeat every two seconds.
func (r *reporter) carrierFailed(peer string, err error, again bool) {
	level := slog.LevelWarn
	if again {
		level = slog.LevelDebug
	}
	r.log.Log(context.Background(), level, "no carrier", "peer", peer, "err", err)
	if f := r.events.CarrierFailed; f != nil {
		f(peer, err)
	}
}

// outageBegins is called when nothing has come back from the peer for a while, and when the last carrier is lost.
func (r *reporter) outageBegins(peer string, silent time.Duration, carriers int) {
	r.log.Warn("outage: nothing comes back from the peer, so connections wait", "peer", peer, "silent", silent.Round(time.Millisecond), "carriers", carriers)
}

// outageEnds is called when bytes come back from the peer, and the bytes of lost carriers have left again.
func (r *reporter) outageEnds(peer string, lasted time.Duration, lost int, again uint64) {
	r.log.Warn("outage is over", "peer", peer, "lasted", lasted.Round(time.Millisecond), "carriers_lost", lost, "bytes_sent_again", again)
}

func (r *reporter) sessionUp(peer string) {
	r.log.Info("session begins", "peer", peer)
	if f := r.events.SessionUp; f != nil {
		f(peer)
	}
}

// sessionLost is called when a session has ended, with the number of its streams. announced: the peer had said that it
// would end.
func (r *reporter) sessionLost(peer string, reason error, streams int, announced bool) {
	if streams == 0 {
		r.log.Info("session has ended, no stream was open", "peer", peer, "reason", reason)
	} else if announced {
		r.log.Info("the peer has ended in order", "peer", peer, "streams_reset", streams)
	} else {
		r.log.Warn("session lost, all its streams are reset", "peer", peer, "streams", streams, "reason", reason)
	}
	if f := r.events.SessionLost; f != nil {
		f(peer, reason)
	}
}
