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
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/logsample"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/quota"
	"github.com/gradproxy/gradproxy/proxy/relay"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A Proxy carries connections of the apps beside it to its peers, and connections from its peers to the apps beside it.
// Its methods may be called concurrently.
type Proxy struct {
	config   Config // with its defaults; Settings are in settings
	settings atomic.Pointer[Settings]
	sampler  *logsample.Handler // of Log
	env      *path.Env
	quotas   *quota.Quotas // of peers
	cache    *cache.Cache
	numbers  numbers
	trials   *trials.Trials

	tags atomic.Uint64 // number of the connection that was opened last

	gated atomic.Int64 // connections that have poll gates

	watcher    app.Watcher
	opening    context.Context // of openings that wait; it ends when the Proxy drains
	noOpenings context.CancelCauseFunc

	live     *handover.Table // the connections that are carried, and the ones that are about to be
	sleepers app.Sleepers    // of them, the ones that have said nothing
	bypass   bypass
}

// A bypass carries connections that have no peer to go through. Its relay is made when the first one comes.
type bypass struct {
	mu    bypassLock
	relay *relay.Relay
}

// A bypassLock is a lock whose rank is rank.Bypass.
type bypassLock struct{ mu sync.Mutex }

func (l *bypassLock) Lock()   { rank.Lock(&l.mu, rank.Bypass) }
func (l *bypassLock) Unlock() { rank.Unlock(&l.mu, rank.Bypass) }

// errEnding is why openings end when the proxy drains.
var errEnding = errors.New("proxy: the proxy is about to end")

// keepAlive finds a dead host of an app within a minute. The proxy cannot see the app's own setting.
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
	p := &Proxy{config: cfg, sampler: log}
	p.quotas = quota.New(cfg.Workers, cfg.Memory/ParsersShare)
	p.watcher = app.NewWatcher()
	p.opening, p.noOpenings = context.WithCancelCause(context.Background())
	p.live = handover.New(p.opening, handover.Config{Open: cfg.Open, Await: cfg.Await, PeerCodecs: cfg.PeerCodecs,
		Peers: func() []string { return p.settings.Load().peerNames() }, Answer: cfg.Answer, Log: cfg.Log})
	p.tags.Store(rand.Uint64N(1 << 40)) // so that no connection is taken for one of an earlier process
	lines, _ := tensors.Beside(cfg.Residuals)
	traits := map[string]parser.Traits{}
	for _, protocol := range p.config.Protocols {
		traits[protocol.String()] = protocol.Traits()
	}
	p.env = &path.Env{
		Buffers: new(memory.Pool), Sending: memory.NewBudget(cfg.Memory), Receiving: memory.NewBudget(cfg.Memory), MemoryWait: memory.Wait,
		Pool: pipe.NewPool(cfg.Workers), Cores: cfg.Workers, Lossless: lossless, Codecs: cfg.Codecs,
		Policy:      func() policy.Policy { return p.settings.Load().Policy },
		Lasting:     func(protocol string) bool { return traits[protocol].Reconnects },
		Residuals:   residual.New(p.config.Residuals, residual.Events{Forgot: p.config.Metrics.forgot, ForgotRows: p.config.Metrics.forgotRows, Resumed: p.config.Metrics.resumedTensor}),
		Tensors:     &tensors.Table{Max: lines},
		Connections: p.live.Len,
		Metrics:     p.config.Metrics,
		Frames:      p.config.Metrics.counts(),
	}
	go newTidier(p.config.Metrics.moved).run(p.opening)
	p.cache = cache.New(p.opening, p.cacheConfig())
	p.trials = trials.New(trials.Config{Codecs: cfg.Codecs, Memory: cfg.ShadowMemory, Share: cfg.ShadowShare})
	if err := p.Apply(cfg.Settings); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// cacheConfig describes the value cache.
func (p *Proxy) cacheConfig() cache.Config {
	return cache.Config{Room: p.config.Values, Codecs: p.config.Codecs, Lossless: p.env.Lossless, Workers: p.env.Pool, Pool: p.env.Buffers,
		Sending: p.env.Sending, Receiving: p.env.Receiving, Metrics: p.config.Metrics, Frames: p.env.Frames, Log: p.config.Log,
		Pace: func(peer string, encoded, decoded int, gone <-chan struct{}) {
			p.quotas.Of(peer).Pace(encoded, decoded, gone)
		},
		Schedule: func(peer string) func() func() { return p.quotas.Schedule(p.quotas.Of(peer)) },
		Open: func(ctx context.Context, peer string, opening []byte) (cache.Stream, error) {
			s, err := p.config.Open(ctx, peer, opening)
			if err != nil {
				return nil, err
			}
			return s, nil
		}}
}

// Apply replaces the settings for connections that come from now on. Policy and candidates change for all connections.
// Apply returns an error if the text of a candidate is wrong; then the old settings stay in force.
func (p *Proxy) Apply(s Settings) error {
	if err := p.trials.Try(s.Shadow); err != nil {
		return err
	}
	p.config.Metrics.expect(&s, p.config.Protocols)
	p.settings.Store(&s)
	return nil
}

// Residuals returns the memory of the tensors that may lose something, which can be saved and loaded.
func (p *Proxy) Residuals() *residual.Store { return p.env.Residuals }

// Connections returns how many connections of apps are carried now.
func (p *Proxy) Connections() int { return p.live.Len() }

// Idle reports whether no connection is carried, or being opened, or waits to be handed over.
func (p *Proxy) Idle() bool { return p.live.Idle() }

// HandOver is the ability of a proxy to let connections rest while a process of its peer is replaced.
const HandOver = handover.Name

// A HandingOver is the time in which all connections are at rest, so that another process can take them over.
type HandingOver = handover.HandingOver

// A Handed is a connection that another process has handed over. Adopt takes it over.
type Handed = handover.Handed

// HandOver brings all connections to rest. It returns an error if they are not at rest when ctx ends, or if they cannot
// rest because a peer's version does not know rest or a connection bypasses the tunnel. After an error everything goes
// on as before.
func (p *Proxy) HandOver(ctx context.Context) (*HandingOver, error) { return p.live.HandOver(ctx, 0) }

// HandOverBy is like HandOver, but it resets connections that do not come to rest within patience, and all connections
// with a peer that does not answer.
func (p *Proxy) HandOverBy(ctx context.Context, patience time.Duration) (*HandingOver, error) {
	return p.live.HandOver(ctx, patience)
}

// Drain makes the Proxy take no new connections, ends openings that wait for an answer, and waits until the existing
// connections have ended. When ctx is done it resets the connections that are left, and returns an error.
func (p *Proxy) Drain(ctx context.Context) error {
	idle := p.live.Drain()
	p.noOpenings(errEnding)
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	n := p.resetAll() + p.resetBypasses()
	p.cache.Reset() // a connection may wait to put a value
	<-idle
	return fmt.Errorf("proxy: drain: %d connections were still open and were reset: %w", n, ctx.Err())
}

// Close resets every connection and ends the workers.
func (p *Proxy) Close() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p.Drain(done)
	p.resetBypasses()
	p.sleepers.Close()
	p.cache.Reset() // also where nothing was open
	p.trials.Close()
	p.env.Pool.Close()
	p.sampler.Flush()
}

func (p *Proxy) resetAll() (n int) {
	p.live.Each(func(_ *handover.Seat, c handover.Conn) {
		n++
		c.Abort(frame.ResetByApp)
	})
	return n
}

// resetBypasses resets the connections that bypass the tunnel and returns how many there were.
func (p *Proxy) resetBypasses() (n int) {
	p.bypass.mu.Lock()
	r, n := p.bypass.relay, p.live.Bypasses()
	p.bypass.mu.Unlock()
	if r != nil {
		r.Close()
	}
	return n
}
