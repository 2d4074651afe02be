package tunnel

import (
	"errors"
	"log/slog"
	"time"
)

func (e *Endpoint) carrierUp(p *peer, c *carrier) {
	e.log.Debug("carrier up", "peer", p.name, "slot", c.place.slot, "address", c.link.RemoteAddr(), "dialed", c.dialed, "congestion", c.link.State().Congestion)
	if f := e.cfg.Events.CarrierUp; f != nil {
		f(p.name)
	}
}

// carrierDown is called when a carrier was lost; not when it has left in order or ended with its session.
func (e *Endpoint) carrierDown(p *peer, c *carrier, err error) {
	if errors.Is(err, errRetired) || c.session.err != nil {
		return
	}
	e.log.Info("carrier lost", "peer", p.name, "slot", c.place.slot, "address", c.link.RemoteAddr(), "lived", time.Since(c.born).Round(time.Millisecond), "err", err)
	if f := e.cfg.Events.CarrierDown; f != nil {
		f(p.name, err)
	}
}

// carrierFailed is called when a dial or a handshake has failed; again: like the last time, which the log need not
// repeat every two seconds.
func (e *Endpoint) carrierFailed(peer string, err error, again bool) {
	level := slog.LevelWarn
	if again {
		level = slog.LevelDebug
	}
	e.log.Log(e.ctx, level, "no carrier", "peer", peer, "err", err)
	if f := e.cfg.Events.CarrierFailed; f != nil {
		f(peer, err)
	}
}

// outageBegins is called when nothing has come back from the peer for a while, and when the last carrier is lost.
func (e *Endpoint) outageBegins(p *peer, silent time.Duration, carriers int) {
	e.log.Warn("outage: nothing comes back from the peer, so connections wait", "peer", p.name, "silent", silent.Round(time.Millisecond), "carriers", carriers)
}

// outageEnds is called when bytes come back from the peer, and the bytes of lost carriers have left again.
func (e *Endpoint) outageEnds(p *peer, lasted time.Duration, lost int, again uint64) {
	e.log.Warn("outage is over", "peer", p.name, "lasted", lasted.Round(time.Millisecond), "carriers_lost", lost, "bytes_sent_again", again)
}

func (e *Endpoint) sessionUp(p *peer) {
	e.log.Info("session begins", "peer", p.name)
	if f := e.cfg.Events.SessionUp; f != nil {
		f(p.name)
	}
}

// sessionLost is called when a session has ended, with the number of its streams. announced: the peer had said that it would end.
func (e *Endpoint) sessionLost(p *peer, reason error, streams int, announced bool) {
	if e.closing.Load() {
		return
	}
	if streams == 0 {
		e.log.Info("session has ended, no stream was open", "peer", p.name, "reason", reason)
	} else if announced {
		e.log.Info("the peer has ended in order", "peer", p.name, "streams_reset", streams)
	} else {
		e.log.Warn("session lost, all its streams are reset", "peer", p.name, "streams", streams, "reason", reason)
	}
	if f := e.cfg.Events.SessionLost; f != nil {
		f(p.name, reason)
	}
}

// relieve is called when 95 % of the memory budget are used, and while that is so. It resets the streams whose readers have taken
// nothing for a second, the largest first, until that is no longer so.
func (e *Endpoint) relieve() {
	if e.relieves.Swap(true) {
		return
	}
	go func() {
		defer e.relieves.Store(false)
		for e.mem.over(95) {
			st := e.largestStalled(time.Now().Add(-time.Second))
			if st == nil {
				return
			}
			e.log.Warn("stream reset: memory budget spent and its reader does not read", "peer", st.Peer(), "bytes", st.Buffered())
			st.Reset(CodeMemory)
		}
	}()
}

// largestStalled returns the stream with most to read, or beyond a gap, among the streams whose reader has taken nothing
// since then, of the peers that use more than their share. One that was reset holds nothing, though the peer may never
// say that it knows.
func (e *Endpoint) largestStalled(since time.Time) (largest *Stream) {
	var most uint64
	for _, p := range e.list() {
		if !p.mem.over(95) {
			continue
		}
		s := p.session()
		s.mu.Lock()
		for _, st := range s.streams {
			if n := st.far - st.pos; n > most && st.waitsAt.Before(since) && !st.aborted && !st.closed {
				largest, most = st, n
			}
		}
		s.mu.Unlock()
	}
	return largest
}
