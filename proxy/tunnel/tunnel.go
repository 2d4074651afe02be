package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// New returns an Endpoint which already dials the peers that have an address. It fails if the configuration
// is wrong or the identity cannot be read. The caller must Close it.
func New(cfg Config) (*Endpoint, error) {
	e := newEndpoint(cfg)
	if err := e.cfg.check(); err != nil {
		return nil, err
	}
	if e.transport = cfg.Transport; e.transport == nil {
		t, err := newTransport(&e.cfg)
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

// newEndpoint returns an Endpoint without transport and peers.
func newEndpoint(cfg Config) *Endpoint {
	cfg.setDefaults()
	e := &Endpoint{
		home: home{
			near: near{
				reporter: reporter{cfg.Logger, cfg.Events},
				pad:      cfg.Pad,
				streams:  cfg.Streams,
				window:   int(min(max(cfg.Memory/2048, minWindow), 256<<10)),
			},
			cfg: cfg,
		},
		wasUp: map[string]bool{},
	}
	e.halfOpenDatagrams.datagrams = true
	e.mem.limit, e.mem.relieve = cfg.Memory, e.relieve
	return e
}

// Open asks peer for a new stream. opening, at most 4,096 bytes, is for its Config.Accept; the tunnel does not look
// into it and does not retain it. Open returns when the answer is there: *RefusedError if it is no. Without a session
// it fails with ErrPeerDown at once (see Await); while one is suspended (all carriers lost, resume time not over) it
// waits, as it does while the peer allows no further stream. When ctx ends the opening is withdrawn.
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

// Await returns nil as soon as there is a session with peer, which may end at any time after, and ErrPeerDown if ctx
// ends before.
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
		p.fail(p.session(), ErrClosed, "the other side has closed")
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
			p := newPeer(&e.home, cfg)
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
		p.fail(p.session(), errors.New("the peer was taken out of the configuration"), "no longer configured")
		if p.everUp() {
			e.wasUp[p.name] = true
		}
	}
	return nil
}

// start runs the goroutines of a peer until stop is called.
func (p *peer) start() {
	ctx, cancel := context.WithCancel(p.home.ctx)
	p.stop, p.stopped = cancel, ctx.Done()
	for slot := range p.home.cfg.Carriers {
		p.home.running.Go(func() { p.keep(ctx, slot) })
	}
	p.home.running.Go(func() { p.watch(ctx) })
}
