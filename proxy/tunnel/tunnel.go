package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An Endpoint is one site's end of its tunnels. Its methods may be called concurrently.
type Endpoint struct {
	cfg               Config // defaults filled in
	log               *slog.Logger
	mem               buffers
	window            int // credit that the peer's streams begin with
	transport         Transport
	halfOpen          halfOpen
	halfOpenDatagrams halfOpen // over datagrams

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	draining atomic.Bool
	closing  atomic.Bool
	relieves atomic.Bool

	mu    sync.Mutex
	peers []*peer         // in the order of Config.Peers
	wasUp map[string]bool // names of peers that were taken out, and had had a session
}

// New returns an Endpoint which already dials the peers that have an address. It fails if the configuration
// is wrong or the identity cannot be read. The caller must Close it.
func New(cfg Config) (*Endpoint, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	e := &Endpoint{cfg: cfg, log: cfg.Logger, wasUp: map[string]bool{}}
	e.mem.limit = cfg.Memory
	e.window = int(min(max(cfg.Memory/2048, minWindow), 256<<10))
	if e.transport = cfg.Transport; e.transport == nil {
		t, err := newTransport(&cfg)
		if err != nil {
			return nil, err
		}
		e.transport = t
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.SetPeers(cfg.Peers); err != nil {
		return nil, err
	}
	return e, nil
}

// Open asks peer for a new stream. opening, at most 4,096 bytes, is for its Config.Accept; the tunnel does not
// look into it and does not retain it. Open returns when the answer is there: *RefusedError if it is no.
// Without a session it fails with ErrPeerDown at once (see Await); while one is suspended (all carriers lost, resume time
// not over) it waits, as it does while the peer allows no further stream. When ctx ends the opening is
// withdrawn.
func (e *Endpoint) Open(ctx context.Context, peer string, opening []byte) (*Stream, error) {
	p := e.peerByName(peer)
	if p == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownPeer, peer)
	}
	s := p.session()
	switch {
	case e.closing.Load():
		return nil, ErrClosed
	case e.draining.Load():
		return nil, fmt.Errorf("%w: this side", ErrDraining)
	case s.known() == incarnation{}:
		return nil, p.down()
	}
	return s.open(ctx, opening)
}

// Await returns nil as soon as there is a session with peer, which may end at any time after, and ErrPeerDown if ctx ends before.
func (e *Endpoint) Await(ctx context.Context, peer string) error {
	p := e.peerByName(peer)
	if p == nil {
		return fmt.Errorf("%w: %q", ErrUnknownPeer, peer)
	}
	for {
		up := p.upcoming()
		if up == nil {
			return nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return p.down()
		case <-p.stopped:
			return ErrClosed
		}
	}
}

// Drain takes no new streams in either direction, tells the peers, and waits until all streams are finished
// or ctx ends. Carriers stay up; Close ends them.
func (e *Endpoint) Drain(ctx context.Context) error {
	e.draining.Store(true)
	for _, p := range e.list() {
		p.session().drain()
	}
	for _, p := range e.list() {
		for {
			s := p.session()
			empty := s.empty()
			if empty == nil {
				break
			}
			select {
			case <-empty:
			case <-ctx.Done():
				return fmt.Errorf("tunnel: draining, %d streams with %s are left: %w", s.count(), p.name, context.Cause(ctx))
			}
		}
	}
	return nil
}

// Close resets all streams, tells the peers, and releases everything. It waits up to a second for
// the peers to hear of it.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	e.closing.Store(true)
	e.mu.Unlock()
	e.cancel()
	for _, p := range e.list() {
		p.session().fail(ErrClosed, "the other side has closed")
	}
	e.running.Wait()
	return nil
}

// SetPeers replaces the list of peers. Sessions with peers that stay (same name and ID) live on; the streams
// of peers that go are reset.
func (e *Endpoint) SetPeers(peers []Peer) error {
	if err := e.cfg.checkPeers(peers); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Load() {
		return ErrClosed
	}
	old := e.peers
	e.peers = nil
	for _, cfg := range peers {
		i := slices.IndexFunc(old, func(p *peer) bool { return p.name == cfg.Name && p.id == cfg.ID })
		if i < 0 {
			p := newPeer(e, cfg)
			p.wasUp = e.wasUp[cfg.Name] || slices.ContainsFunc(old, func(o *peer) bool { return o.name == cfg.Name && o.everUp() })
			e.peers = append(e.peers, p)
			p.start()
			continue
		}
		e.peers = append(e.peers, old[i])
		old[i].setAddress(cfg.Dial)
		old = slices.Delete(slices.Clone(old), i, i+1)
	}
	e.mem.peers.Store(int64(len(peers)))
	for _, p := range old {
		p.stop()
		p.session().fail(errors.New("the peer was taken out of the configuration"), "no longer configured")
		if p.everUp() {
			e.wasUp[p.name] = true
		}
	}
	return nil
}

func (e *Endpoint) list() []*peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers
}

func (e *Endpoint) peerByName(name string) *peer {
	return e.find(func(p *peer) bool { return p.name == name })
}

func (e *Endpoint) peerByID(id string) *peer {
	return e.find(func(p *peer) bool { return p.id == id })
}

// find returns the first peer that f takes; nil: none.
func (e *Endpoint) find(f func(*peer) bool) *peer {
	peers := e.list()
	if i := slices.IndexFunc(peers, f); i >= 0 {
		return peers[i]
	}
	return nil
}

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
			c.count(state.Network)
			if state.Congestion == "bbr" {
				st.BBR++
			}
			if c.datagrams {
				st.Datagrams++
			}
			st.Links = append(st.Links, c.stats(&state))
		}
		st.Choice = p.choice()
		st.Network = Traffic{p.networkSent.Load(), p.networkReceived.Load()}
		if s.outage.lasts() {
			st.Outage, st.RTT, st.Rate = max(time.Since(s.outage.began), 1), 0, 0
		}
		st.Unconfirmed = max(s.meter.flight, 0)
		st.Carriers, st.Session, st.Streams = len(s.carriers), s.theirs != incarnation{}, len(s.streams)
		st.Codecs, st.Draining = slices.Clone(s.codecs), s.goneAway
		s.mu.Unlock()
		all = append(all, st)
	}
	return all
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
	Rate      float64       // bytes per second at which bulk arrives at the peer, the most of the last 10 s; 0: unknown, or an outage
	Codecs    []string      // the peer's list
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
	Carrier    string        // CarrierTLS or CarrierDTLS
	Congestion string        // name of the congestion control; "": not known
	Remote     string        // address of the other end
	Age        time.Duration // since it came
	RTT        time.Duration // smoothed; 0: not known
	Loss       float64       // part of the packets that were lost so far; 0 where that is not known
	Backlog    uint64        // bytes that have left this process and that the other host has not confirmed
	Network    Traffic       // of this carrier
	Leaving    bool          // another one takes its place
}

// stats describes a carrier whose Link has that state. The session's lock is held.
func (c *carrier) stats(state *LinkState) CarrierStats {
	s := CarrierStats{Carrier: CarrierTLS, Congestion: state.Congestion, Age: time.Since(c.born), RTT: state.RTT, Loss: state.Loss, Backlog: state.Backlog,
		Network: state.Network, Leaving: c.leaving}
	if c.datagrams {
		s.Carrier = CarrierDTLS
	}
	if a := c.link.RemoteAddr(); a != nil {
		s.Remote = a.String()
	}
	return s
}
