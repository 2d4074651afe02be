package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/logsample"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// Config has the parts of a Proxy. Open, Codecs and Settings.Policy are needed.
type Config struct {
	// Open opens a stream to a peer; tunnel.Endpoint has it.
	Open func(ctx context.Context, peer string, opening []byte) (Stream, error)
	// Codecs makes the codecs that peers declare, of their texts. Unknown texts are errors.
	Codecs func(text string) (codecs.Codec, error)
	// PeerCodecs lists the names of the codecs that a peer has, as its hello said; nil: all peers have all.
	PeerCodecs func(peer string) []string
	Protocols  []parser.Protocol                                      // tried in this order; none: everything travels verbatim
	Settings   Settings                                               // may be replaced while the Proxy runs
	Control    func(network, address string, c syscall.RawConn) error // of sockets that dial servers, as net.Dialer's
	// AsClient sets the options of sockets that dial servers from their client's address and port, as a gateway does whose
	// packets to clients pass it; nil: servers see this host. It is used only for clients in the peer's own networks.
	AsClient func(network, address string, c syscall.RawConn) error
	Own      []netip.AddrPort // addresses of this process's listeners, which it never dials
	// Places bounds the descriptors of connections. A connection that Serve or Accept is given has one; one that bypasses the
	// tunnel takes a second. nil: there are enough.
	Places Places
	Pipes  int // of two descriptors each, at most, for connections that bypass the tunnel; 0: 256
	// PollGates bounds the connections that are read at less cost, and take PollGateDescriptors more each; 0: 1024.
	PollGates int

	// Answer is how long an opening waits for the peer's answer, beside the time that dialling the server may take; then its
	// app is reset. The time that connections outlive an outage fits, the tunnel's Resume. 0: 10 minutes.
	Answer time.Duration
	// Memory bounds the bytes that connections hold in each direction, from app to tunnel and from tunnel to app: bytes that
	// were read, blocks as they are and encoded, and bytes that wait with them. When they are spent each connection may still
	// hold 32 KiB in each direction, with which it gets on, if slowly: so 10,000 connections hold up to Memory and 313 MiB
	// in each. Beside it are the buffers of tunnels, Values, Residuals, and the memory of codecs for the blocks that Workers
	// are at. 0: 256 MiB.
	Memory int64
	// Values bounds the bytes of values that are shared with each peer, each way, but for one that is just being read. Values of
	// a lost value stream that apps have yet to read may take as much again. 0: 512 MiB, negative: none are shared.
	Values    int64
	Residuals int64        // bytes of the memory of tensors that may lose something; 0: 1 GiB
	Workers   int          // cores that encode and decode; 0: all
	Log       *slog.Logger // nil: silent. Lines that peers and jobs can trigger are bounded: see package logsample
	Metrics   *Metrics     // nil: nothing is counted
}

// SharedValues is the name under which hellos list, among codecs, that a proxy has a value cache.
const SharedValues = cache.Name

// PollGateDescriptors is how many descriptors a connection that is one of Config.PollGates takes besides its own.
const PollGateDescriptors = app.GateDescriptors

// Places are given to connections, one each; intercept.Gate has some. Enter waits, and reports false if ctx ends first; after true
// the place is given back by Leave.
type Places interface {
	Enter(ctx context.Context) bool
	Leave()
}

// Settings may change while the Proxy runs; connections that exist keep their peer and job.
type Settings struct {
	Peers  []Peer
	Jobs   []Job
	Policy policy.Policy

	// RefusedRetry is how long a server that refuses connections is dialled again and again for a peer, until the peer is
	// told of the refusal or withdraws. 0: 30 s. Negative: not at all.
	RefusedRetry time.Duration
}

// A Peer is the far end of a tunnel, and the networks behind it.
type Peer struct {
	Name     string
	Networks []netip.Prefix // destinations that are reached through it
	MayDial  []DialRule     // destinations that it may ask this proxy to dial; none: nothing
}

// A Job is a training job that the operator has described.
type Job struct {
	Name     string
	Networks []netip.Prefix // of its hosts: a connection of the job has both ends in them
	Ranks    int            // at most; 0: unknown
	Sums     tensor.Role    // Gradient: its rings sum gradients. Unknown: they may sum anything

	// LossyAggregates lets sums that all replicas receive lose something, with feedback: replicas will differ, a little.
	LossyAggregates bool
}

// A Proxy carries connections of the apps beside it to its peers, and connections of theirs to the apps beside it.
type Proxy struct {
	config   Config // with its defaults; Settings are in settings
	settings atomic.Pointer[Settings]
	sampler  *logsample.Handler // of Log
	env      *path.Env
	cache    *cache.Cache
	numbers  numbers
	tags     atomic.Uint64 // number of the connection that was opened last

	carried atomic.Int64 // len(live)
	gated   atomic.Int64 // connections that have poll gates

	watcher    app.Watcher
	opening    context.Context // of openings that wait; it ends when the Proxy drains
	noOpenings context.CancelCauseFunc

	mu       sync.Mutex
	live     map[*path.Conn]struct{}
	bypass   bypass
	draining bool
	idle     chan struct{} // closed once draining and nothing is live
}

// New returns a Proxy. The caller must Close it.
func New(cfg Config) (*Proxy, error) {
	if cfg.Open == nil || cfg.Codecs == nil || cfg.Settings.Policy == nil {
		return nil, errors.New("proxy: Open, Codecs and Policy are needed")
	}
	cfg.setDefaults()
	log := logsample.New(cfg.Log.Handler())
	cfg.Log = slog.New(log)
	lossless, err := cfg.Codecs("lossless")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{config: cfg, sampler: log, live: map[*path.Conn]struct{}{}, idle: make(chan struct{})}
	p.watcher = app.NewWatcher()
	p.opening, p.noOpenings = context.WithCancelCause(context.Background())
	p.tags.Store(rand.Uint64N(1 << 40)) // so that no connection is taken for one of an earlier process
	lasting := map[string]bool{}
	for _, protocol := range p.config.Protocols {
		lasting[protocol.String()] = protocol.Traits().Reconnects
	}
	p.env = &path.Env{
		Buffers: new(memory.Pool), Sending: memory.NewBudget(cfg.Memory), Receiving: memory.NewBudget(cfg.Memory), MemoryWait: memory.Wait,
		Pool: pipe.NewPool(cfg.Workers), Cores: cfg.Workers, Lossless: lossless, Codecs: cfg.Codecs,
		Policy:      func() policy.Policy { return p.settings.Load().Policy },
		Lasting:     func(protocol string) bool { return lasting[protocol] },
		Residuals:   residual.New(p.config.Residuals, p.config.Metrics.forgot, p.config.Metrics.forgotRows),
		Tensors:     new(tensors.Table),
		Connections: func() int { return int(p.carried.Load()) },
		Metrics:     p.config.Metrics,
	}
	p.cache = cache.New(p.opening, cache.Config{Room: p.config.Values, Codecs: cfg.Codecs, Lossless: lossless, Workers: p.env.Pool, Pool: p.env.Buffers,
		Sending: p.env.Sending, Receiving: p.env.Receiving, Metrics: p.config.Metrics, Log: cfg.Log,
		Open: func(ctx context.Context, peer string, opening []byte) (cache.Stream, error) {
			s, err := cfg.Open(ctx, peer, opening)
			if err != nil {
				return nil, err
			}
			return s, nil
		}})
	p.Apply(cfg.Settings)
	return p, nil
}

// setDefaults replaces zero fields by their defaults.
func (c *Config) setDefaults() {
	c.Memory = cmp.Or(c.Memory, 256<<20)
	c.Answer = cmp.Or(c.Answer, 10*time.Minute)
	c.PollGates = cmp.Or(c.PollGates, 1024)
	c.Residuals = cmp.Or(c.Residuals, 1<<30)
	c.Values = cmp.Or(c.Values, 512<<20)
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Apply replaces the settings, for connections that come from now on; the policy changes for all.
func (p *Proxy) Apply(s Settings) { p.settings.Store(&s) }

// Residuals returns the memory of the tensors that may lose something, which can be saved and loaded.
func (p *Proxy) Residuals() *residual.Store { return p.env.Residuals }

// TensorInfo answers "why was this not compressed?" for one tensor.
type TensorInfo = tensors.Info

// Tensors lists the tensors that this proxy has sent, largest first.
func (p *Proxy) Tensors() []TensorInfo { return p.env.Tensors.List() }

// carry carries a connection of the app behind conn and of stream until it ends.
func (p *Proxy) carry(conn *net.TCPConn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side) {
	job := p.settings.Load().jobOf(o.Client.Addr(), o.Server.Addr())
	values := p.cache.Peer(peer)
	c := &path.Conn{Env: p.env, App: app.Plain(conn), Stream: stream, Peer: peer, Job: job.Name, Log: log, Gone: make(chan struct{}),
		Tag: frame.Tag{Number: o.Tag, Mine: own == parser.Client}, SendShare: &values.Sending, ReceiveShare: &values.Receiving}
	if p.config.Values > 0 {
		c.Values = values
	}
	if p.config.PeerCodecs != nil {
		c.PeerCodecs = p.config.PeerCodecs(peer)
	}
	conn.SetKeepAliveConfig(keepAlive)
	defer p.gate(conn, c)()
	if !p.enter(c) {
		c.Abort(frame.ResetByApp)
		return
	}
	defer p.leave(c)
	values.Connected(c.Tag)
	defer values.Ended(c.Tag)
	p.config.Metrics.carries(peer, clientSide(own), 1)
	defer p.config.Metrics.carries(peer, clientSide(own), -1)
	log.Debug("connection carried", "job", job.Name)
	how := p.both(c, parser.Conn{Job: job.Name, Client: o.Client, Server: o.Server, Number: o.Number,
		Ranks: job.Ranks, Sums: job.Sums, Own: own}, job.LossyAggregates)
	p.config.Metrics.endedAs(peer, how)
	log.Debug("connection ended", "how", how)
}

// gate puts the app's end of c behind poll gates, if there are any left. done gives them back.
func (p *Proxy) gate(conn *net.TCPConn, c *path.Conn) (done func()) {
	done = func() { p.gated.Add(-1) }
	if p.gated.Add(1) <= int64(p.config.PollGates) {
		gated, err := app.Gate(conn)
		if err == nil {
			c.App = gated
			return done
		}
		c.Log.Debug("a connection has no poll gates, and wakes this proxy more often", "err", err)
	}
	done()
	return func() {}
}

func clientSide(own parser.Side) string {
	if own == parser.Client {
		return "here"
	}
	return "there"
}

// enter notes a connection, unless the Proxy is draining.
func (p *Proxy) enter(c *path.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return false
	}
	p.live[c] = struct{}{}
	p.carried.Store(int64(len(p.live)))
	return true
}

func (p *Proxy) leave(c *path.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
	p.carried.Store(int64(len(p.live)))
	p.drained()
}

// drained ends a drain if no connection is left that it waits for. mu is held.
func (p *Proxy) drained() {
	if p.draining && len(p.live) == 0 && p.bypass.count == 0 {
		close(p.idle)
	}
}

// Drain takes no new connections, ends openings that wait for an answer, and waits until the existing connections have ended; it
// resets them when ctx is done.
func (p *Proxy) Drain(ctx context.Context) error {
	p.mu.Lock()
	if !p.draining {
		p.draining = true
		p.drained()
	}
	p.mu.Unlock()
	p.noOpenings(errEnding)
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
	}
	n := p.resetAll() + p.resetBypasses()
	p.cache.Reset() // a connection may wait to put a value
	<-p.idle
	return fmt.Errorf("proxy: drain: %d connections were still open and were reset: %w", n, ctx.Err())
}

// Close resets every connection and ends the workers.
func (p *Proxy) Close() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p.Drain(done)
	p.resetBypasses()
	p.cache.Reset() // also where nothing was open
	p.env.Pool.Close()
	p.sampler.Flush()
}

func (p *Proxy) resetAll() int {
	p.mu.Lock()
	live := make([]*path.Conn, 0, len(p.live))
	for c := range p.live {
		live = append(live, c)
	}
	p.mu.Unlock()
	for _, c := range live {
		c.Abort(frame.ResetByApp)
	}
	return len(live)
}
