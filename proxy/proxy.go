package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/logsample"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/relay"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
)

// A Proxy carries connections of the apps beside it to its peers, and connections of theirs to the apps beside it.
type Proxy struct {
	config   Config // with its defaults; Settings are in settings
	settings atomic.Pointer[Settings]
	sampler  *logsample.Handler // of Log
	env      *path.Env
	parsing  *memory.Budget // of parsers' state
	quotas   quotas         // of peers
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

// A bypass carries connections that have no peer to go through. Its relay is made when the first one comes.
type bypass struct {
	relay *relay.Relay
	count int // connections that bypass the tunnel, or are about to; a drain waits for them as for live ones
}

// errEnding is why openings end when the proxy drains.
var errEnding = errors.New("proxy: the proxy is about to end")

// keepAlive finds a dead app host in a minute; the app's own wish cannot be seen from here.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

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
	p.parsing, p.quotas.cores = memory.NewBudget(cfg.Memory/ParsersShare), cfg.Workers
	p.watcher = app.NewWatcher()
	p.opening, p.noOpenings = context.WithCancelCause(context.Background())
	p.tags.Store(rand.Uint64N(1 << 40)) // so that no connection is taken for one of an earlier process
	traits := map[string]parser.Traits{}
	for _, protocol := range p.config.Protocols {
		traits[protocol.String()] = protocol.Traits()
	}
	p.env = &path.Env{
		Buffers: new(memory.Pool), Sending: memory.NewBudget(cfg.Memory), Receiving: memory.NewBudget(cfg.Memory), MemoryWait: memory.Wait,
		Pool: pipe.NewPool(cfg.Workers), Cores: cfg.Workers, Lossless: lossless, Codecs: cfg.Codecs,
		Policy:      func() policy.Policy { return p.settings.Load().Policy },
		Lasting:     func(protocol string) bool { return traits[protocol].Reconnects },
		Residuals:   residual.New(p.config.Residuals, p.config.Metrics.forgot, p.config.Metrics.forgotRows),
		Tensors:     new(tensors.Table),
		Connections: func() int { return int(p.carried.Load()) },
		Metrics:     p.config.Metrics,
	}
	p.cache = cache.New(p.opening, p.cacheConfig(p.config.Values))
	p.Apply(cfg.Settings)
	return p, nil
}

// cacheConfig describes a value cache with room for so many bytes.
func (p *Proxy) cacheConfig(room int64) cache.Config {
	return cache.Config{Room: room, Codecs: p.config.Codecs, Lossless: p.env.Lossless, Workers: p.env.Pool, Pool: p.env.Buffers,
		Sending: p.env.Sending, Receiving: p.env.Receiving, Metrics: p.config.Metrics, Log: p.config.Log,
		Open: func(ctx context.Context, peer string, opening []byte) (cache.Stream, error) {
			s, err := p.config.Open(ctx, peer, opening)
			if err != nil {
				return nil, err
			}
			return s, nil
		}}
}

// Apply replaces the settings, for connections that come from now on; the policy changes for all.
func (p *Proxy) Apply(s Settings) {
	p.config.Metrics.expect(s.Peers, p.config.Protocols)
	p.settings.Store(&s)
}

// Residuals returns the memory of the tensors that may lose something, which can be saved and loaded.
func (p *Proxy) Residuals() *residual.Store { return p.env.Residuals }

// TensorInfo answers "why was this not compressed?" for one tensor.
type TensorInfo = tensors.Info

// Tensors lists the tensors that this proxy has sent, largest first.
func (p *Proxy) Tensors() []TensorInfo { return p.env.Tensors.List() }

// carry carries a connection of the app behind conn and of stream until it ends.
func (p *Proxy) carry(conn *net.TCPConn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side) {
	conn.SetKeepAliveConfig(keepAlive)
	app.Inline(conn)
	if n := sendBuffer(p.config.Memory, p.carried.Load()); n > 0 {
		conn.SetWriteBuffer(n)
	}
	end, done := p.gate(conn, log)
	defer done()
	p.join(end, stream, peer, log, o, own, func() parser.Calls { return p.calls(conn, o, own) })
}

// join carries the bytes between an app's end and a stream until both directions have ended. calls returns
// the collectives that the app is seen to call; nil: nobody sees them.
func (p *Proxy) join(end *app.Conn, stream Stream, peer string, log *slog.Logger, o frame.Opening, own parser.Side, calls func() parser.Calls) {
	set, protocols := p.settings.Load(), p.config.Protocols
	job := set.jobOf(o.Client.Addr(), o.Server.Addr())
	if own == parser.Server {
		switch {
		case set.stranger(peer, o.Client.Addr()):
			log.Warn("peer names a client that lies behind another peer: the connection is of no job, and travels verbatim from here")
			job, protocols = Job{}, nil
		case job.Name != "" && !set.behind(peer, o.Client.Addr()):
			log.Warn("peer names a client that lies in none of its networks: the connection is of no job; add the network to the peer if it is the job's", "job", job.Name)
			job = Job{}
		}
	}
	values := p.cache.Peer(peer)
	c := &path.Conn{Env: p.env, App: end, Stream: stream, Peer: peer, Job: job.Name, Log: log, Gone: make(chan struct{}),
		Tag: frame.Tag{Number: o.Tag, Mine: own == parser.Client}, SendShare: &values.Sending, ReceiveShare: &values.Receiving}
	if p.config.Values > 0 {
		c.Values = values
	}
	if p.config.PeerCodecs != nil {
		c.PeerCodecs = p.config.PeerCodecs(peer)
	}
	q := p.quotas.of(peer)
	defer p.quotas.enter(q)()
	c.Pace = q.decoding.wait
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
	how := p.both(c, protocols, parser.Conn{Job: job.Name, Peer: peer, Client: o.Client, Server: o.Server, Number: o.Number,
		Ranks: job.Ranks, Sums: job.Sums, Calls: calls(), Own: own}, job.LossyAggregates)
	p.config.Metrics.endedAs(peer, how)
	log.Debug("connection ended", "how", how)
}

// sendBuffer returns the bytes of the kernel's send buffer towards an app where so many other connections are carried; 0: the kernel chooses. An
// app that does not read has the kernel hold a whole buffer, by default 4 MiB, and the kernel's memory for TCP is one for the
// whole host. So the buffers of all connections together are bounded by memory, of which each of the first few has an equal part.
func sendBuffer(memory, connections int64) int {
	const few, least, most = 64, 64 << 10, 4 << 20
	n := memory / max(connections+1, few) / 2 // the kernel doubles it, for its own needs
	if n >= most/2 {
		return 0
	}
	return int(max(n, least))
}

// calls returns what is seen of the collectives that the app behind conn calls, nil if nobody sees them.
func (p *Proxy) calls(conn *net.TCPConn, o frame.Opening, own parser.Side) parser.Calls {
	if p.config.Calls == nil {
		return nil
	}
	far := o.Server
	if own == parser.Server {
		far = o.Client
	}
	return p.config.Calls(frame.Unmap(app.AddrOf(conn.RemoteAddr())), frame.Unmap(app.AddrOf(conn.LocalAddr())), far)
}

// gate returns the app's end of a connection, behind poll gates if there are any left. done gives them back.
func (p *Proxy) gate(conn *net.TCPConn, log *slog.Logger) (end *app.Conn, done func()) {
	done = func() { p.gated.Add(-1) }
	if p.gated.Add(1) <= int64(p.config.PollGates) {
		gated, err := app.Gate(conn)
		if err == nil {
			return gated, done
		}
		log.Debug("a connection has no poll gates, and wakes this proxy more often", "err", err)
	}
	done()
	return app.Plain(conn), func() {}
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
