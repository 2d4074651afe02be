package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type Config struct {
	Name     string   // of this site, not empty; peers show it in their logs
	Identity Identity // files; they are read again when they change
	Peers    []Peer

	// Accept is called, on a goroutine of its own, for each opening that a peer sends. peer is the peer's
	// name in this Config, proved by its certificate. Accept owns opening. It answers by in.Accept or
	// in.Refuse; returning without an answer refuses with CodeCanceled. nil: every opening is refused.
	Accept func(peer string, opening []byte, in *Incoming)

	Resume     time.Duration // how long streams survive without a carrier; 0: 10 minutes
	Carriers   int           // a session's connections, if this side dials, 1 to 16; 0: 2
	Codecs     []string      // told to peers, which see it by Endpoint.Stats; at most 256 of 64 bytes
	Memory     int64         // bytes of buffers, all sessions together; 0: 512 MiB. See the package comment
	Streams    int           // streams that one peer may have open here; 0: 16,384
	Congestion string        // TCP congestion control of carriers; "": bbr where the kernel has it, else the kernel's; "default": the kernel's

	// Insecure carries everything in clear and believes the name that a peer says. It is refused unless both
	// addresses of a carrier are loopback.
	Insecure bool

	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP, without MPTCP
	Now    func() time.Time                                                     // what certificates are checked against; nil: time.Now
	Events Events                                                               // told as things happen
	Logger *slog.Logger                                                         // nil: silent
}

type Identity struct {
	Cert, Key, CA string
}

type Peer struct {
	Name string // how this side calls it
	Dial string // host:port; "": this side waits to be dialed
	ID   string // SPIFFE id, which must be the only URI in its certificate: "spiffe://lab/tokyo"
}

type Events struct {
	CarrierUp     func(peer string)
	CarrierDown   func(peer string, err error)    // lost, not retired in order
	SessionUp     func(peer string)               // a new session, without streams yet
	SessionLost   func(peer string, reason error) // all its streams were reset
	CarrierFailed func(peer string, err error)    // a dial or handshake; peer is "" while it is not known
}

type Endpoint struct {
	cfg      Config // defaults filled in
	log      *slog.Logger
	mem      buffers
	window   int // credit that the peer's streams begin with
	identity *identityStore
	halfOpen halfOpen

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	draining atomic.Bool
	closing  atomic.Bool
	relieves atomic.Bool

	mu    sync.Mutex
	peers []*peer // in the order of Config.Peers
}

func New(cfg Config) (*Endpoint, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	e := &Endpoint{cfg: cfg, log: cfg.Logger}
	e.mem.limit = cfg.Memory
	e.window = int(min(max(cfg.Memory/2048, minWindow), 256<<10))
	e.identity = &identityStore{files: cfg.Identity, log: e.log}
	if !cfg.Insecure {
		if err := e.identity.load(); err != nil {
			return nil, err
		}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.SetPeers(cfg.Peers); err != nil {
		return nil, err
	}
	return e, nil
}

func (c *Config) setDefaults() {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Carriers, 2)
	set(&c.Streams, 16384)
	if c.Resume == 0 {
		c.Resume = 10 * time.Minute
	}
	if c.Memory == 0 {
		c.Memory = 512 << 20
	}
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("tunnel: "+format, args...)) }
	if c.Name == "" || len(c.Name) > maxName {
		fault("site name of %d bytes, not 1 to %d", len(c.Name), maxName)
	}
	if c.Carriers < 1 || c.Carriers > maxSlots {
		fault("%d carriers, not 1 to %d", c.Carriers, maxSlots)
	}
	if c.Streams < 1 || c.Streams > 1<<20 {
		fault("%d streams, not 1 to %d", c.Streams, 1<<20)
	}
	if c.Resume < 0 || c.Memory < 0 {
		fault("negative resume time or memory")
	}
	if len(c.Codecs) > maxCodecs || slices.ContainsFunc(c.Codecs, func(s string) bool { return len(s) > maxCodecName }) {
		fault("more than %d codecs, or one of more than %d bytes", maxCodecs, maxCodecName)
	}
	return errors.Join(errs...)
}

func (c *Config) checkPeers(peers []Peer) error {
	var errs []error
	names, ids := map[string]bool{}, map[string]bool{}
	for _, p := range peers {
		fault := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("tunnel: peer %q: "+format, append([]any{p.Name}, args...)...))
		}
		if p.Name == "" {
			fault("it has no name")
		}
		if names[p.Name] {
			fault("the name is there twice")
		}
		names[p.Name] = true
		if p.Dial != "" {
			if _, _, err := net.SplitHostPort(p.Dial); err != nil {
				fault("dial %q: %w", p.Dial, err)
			}
		}
		if c.Insecure {
			continue
		}
		if u, err := url.Parse(p.ID); err != nil || u.Scheme != "spiffe" || u.Host == "" || u.Path == "" {
			fault("id %q is not like spiffe://domain/site", p.ID)
		}
		if ids[p.ID] {
			fault("id %q is there twice", p.ID)
		}
		ids[p.ID] = true
	}
	return errors.Join(errs...)
}

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
		return nil, fmt.Errorf("%w: %s", ErrPeerDown, peer)
	}
	return s.open(ctx, opening)
}

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
			e.peers = append(e.peers, p)
			p.start()
			continue
		}
		e.peers = append(e.peers, old[i])
		old[i].setAddress(cfg.Dial)
		old = slices.Delete(slices.Clone(old), i, i+1)
	}
	for _, p := range old {
		p.stop()
		p.session().fail(errors.New("the peer was taken out of the configuration"), "no longer configured")
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

func (e *Endpoint) find(f func(*peer) bool) *peer {
	peers := e.list()
	if i := slices.IndexFunc(peers, f); i >= 0 {
		return peers[i]
	}
	return nil
}

func (e *Endpoint) Stats() []PeerStats {
	var all []PeerStats
	for _, p := range e.list() {
		rtt, rate := p.path()
		st := PeerStats{
			Peer: p.name, RTT: rtt, Rate: rate,
			Sessions: p.sessions.Load(), Outages: p.outages.Load(), Replayed: p.replayed.Load(),
			Sent: p.sent.Load(), Received: p.received.Load(),
		}
		s := p.session()
		s.mu.Lock()
		st.Carriers, st.Session, st.Streams = len(s.carriers), s.theirs != incarnation{}, len(s.streams)
		st.Codecs, st.Draining = slices.Clone(s.codecs), s.goneAway
		s.mu.Unlock()
		all = append(all, st)
	}
	return all
}

type PeerStats struct {
	Peer     string
	Carriers int           // attached now; 0 with Session: suspended
	Session  bool          // there is one
	Streams  int           // open now
	RTT      time.Duration // smallest of the last PINGs; 0: unknown
	Rate     float64       // bytes per second that the carriers have delivered, the most of the last 10 s; 0: unknown
	Codecs   []string      // the peer's list
	Draining bool          // the peer takes no new streams

	Sessions uint64 // begun
	Outages  uint64 // times that all carriers were gone
	Replayed uint64 // bytes sent again after the loss of a carrier
	Sent     uint64 // bytes of streams handed to carriers, replays left out
	Received uint64 // bytes of streams taken from carriers, duplicates left out
}
