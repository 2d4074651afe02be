package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/quiet"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// Config is what a Proxy is made of. Open, Codecs and Settings.Policy are needed.
type Config struct {
	// Open opens a stream to a peer; tunnel.Endpoint has it.
	Open func(ctx context.Context, peer string, opening []byte) (Stream, error)
	// Codecs makes a codec of its text, for what peers declare. Unknown texts are errors.
	Codecs func(text string) (codecs.Codec, error)
	// PeerCodecs lists the names of the codecs that a peer has, as its hello said; nil: all peers have all.
	PeerCodecs func(peer string) []string
	Protocols  []parser.Protocol                                      // tried in this order; none: everything travels verbatim
	Settings   Settings                                               // may be replaced while the Proxy runs
	Control    func(network, address string, c syscall.RawConn) error // of sockets that dial servers, as net.Dialer's
	Own        []netip.AddrPort                                       // addresses of this process's listeners, which no peer may make it dial
	Memory     int64                                                  // bytes of blocks that may be held in each direction; 0: 256 MiB
	Residuals  int64                                                  // bytes of what is remembered of tensors that may lose something; 0: 1 GiB
	Workers    int                                                    // cores that encode and decode; 0: all
	Log        *slog.Logger                                           // nil: silent. What peers and jobs can trigger is bounded: see package quiet
	Metrics    *Metrics                                               // nil: nothing is counted
}

// Settings are what an operator may change while the Proxy runs; connections that exist keep their peer and job.
type Settings struct {
	Peers  []Peer
	Jobs   []Job
	Policy policy.Policy
}

// A Peer is the far end of a tunnel, and what lies behind it.
type Peer struct {
	Name     string
	Networks []netip.Prefix // destinations that are reached through it
	MayDial  []DialRule     // what it may ask this proxy to dial; none: nothing
}

// A Job is a training job that the operator has described.
type Job struct {
	Name     string
	Networks []netip.Prefix // of its hosts: a connection of the job has both ends in them
	Ranks    int            // at most; 0: unknown
	Sums     tensor.Role    // Gradient: its rings sum gradients. Unknown: nobody says so

	// LossyAggregates lets sums that all replicas receive lose something, with feedback: replicas will differ, a little.
	LossyAggregates bool
}

// A Proxy carries connections of the apps beside it to its peers, and connections of theirs to the apps beside it.
type Proxy struct {
	Config
	settings atomic.Pointer[Settings]
	quiet    *quiet.Handler // of Log
	buffers  buffers
	budget   budget // of senders
	received budget // of receivers: neither may wait for what the other holds
	pool     *pipe.Pool
	cores    int
	tensors  tensorTable
	memories *memories
	lossless codecs.Codec
	lasting  map[string]bool // protocols whose tensors outlive a connection
	numbers  numbers

	mu       sync.Mutex
	live     map[*connection]struct{}
	draining bool
	idle     chan struct{} // closed once draining and nothing is live
}

// New returns a Proxy. The caller must Close it.
func New(cfg Config) (*Proxy, error) {
	if cfg.Open == nil || cfg.Codecs == nil || cfg.Settings.Policy == nil {
		return nil, errors.New("proxy: Open, Codecs and Policy are needed")
	}
	if cfg.Memory == 0 {
		cfg.Memory = 256 << 20
	}
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	log := quiet.New(cfg.Log.Handler())
	cfg.Log = slog.New(log)
	lossless, err := cfg.Codecs("lossless")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{Config: cfg, quiet: log, lossless: lossless, lasting: map[string]bool{}, budget: newBudget(cfg.Memory), received: newBudget(cfg.Memory),
		pool: pipe.NewPool(cfg.Workers), cores: cfg.Workers, live: map[*connection]struct{}{}, idle: make(chan struct{})}
	if p.Residuals == 0 {
		p.Residuals = 1 << 30
	}
	p.memories = newMemories(p.Residuals, p.Metrics.forgot)
	for _, protocol := range p.Protocols {
		if l, ok := protocol.(parser.Lasting); ok && l.Lasting() {
			p.lasting[protocol.String()] = true
		}
	}
	p.Apply(cfg.Settings)
	return p, nil
}

// Apply replaces the settings, for connections that come from now on; the policy changes for all.
func (p *Proxy) Apply(s Settings) { p.settings.Store(&s) }

func (p *Proxy) policy() policy.Policy { return p.settings.Load().Policy }

// Tensors lists what is known of the tensors that this proxy has sent, largest first.
func (p *Proxy) Tensors() []TensorInfo { return p.tensors.list() }

// Serve carries one intercepted connection to the peer behind which server lies, and returns when it has ended. If the
// peer or the server cannot be reached, c is reset at once: clients that start before their server rely on being
// refused, and an orderly end would look like an answer.
func (p *Proxy) Serve(ctx context.Context, c *net.TCPConn, server netip.AddrPort) {
	defer reset(c) // after an orderly end this does nothing
	o := opening{client: unmap(addrOf(c.RemoteAddr())), server: unmap(server)}
	set := p.settings.Load()
	peer := set.peerOf(o.server.Addr())
	if peer == nil {
		p.Log.Warn("connection reset: its destination is behind no peer; add the network to a peer, or do not intercept it",
			"client", o.client, "server", o.server)
		return
	}
	pair := addrPair{set.jobOf(o.client.Addr(), o.server.Addr()).Name, o.client.Addr(), o.server.Addr()}
	o.number = p.numbers.take(pair)
	defer p.numbers.give(pair, o.number)
	log := p.Log.With("peer", peer.Name, "client", o.client, "server", o.server)
	stream, err := p.Open(ctx, peer.Name, o.append(nil))
	if err != nil {
		p.Metrics.opens(peer.Name, openResult(err))
		log.Warn("connection reset: it could not be opened", "reason", openResult(err), "err", err)
		return
	}
	p.Metrics.opens(peer.Name, "ok")
	p.carry(&connection{shared: p, conn: c, stream: stream, peer: peer.Name, log: log}, o, parser.Client)
}

// openResult names what became of an opening, for metrics.
func openResult(err error) string {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, tunnel.ErrPeerDown):
		return "peer down"
	case !errors.As(err, &refused):
		return "failed"
	}
	return refusedAs(refused.Code)
}

// refusedAs names a code of refusals, for metrics and logs.
func refusedAs(code tunnel.Code) string {
	switch code {
	case refusedDenied:
		return "denied"
	case refusedByServer:
		return "refused"
	case refusedUnreachable:
		return "unreachable"
	}
	return "failed"
}

// An Incoming is an opening that waits for its answer; *tunnel.Incoming is one.
type Incoming interface {
	Refuse(code tunnel.Code, text string)
	Done() <-chan struct{}
}

// Accept answers a peer's opening: it dials the server, at once and exactly once, if the peer may have that dialled,
// and then carries the connection until it ends. accept answers yes.
func (p *Proxy) Accept(peer string, opened []byte, in Incoming, accept func() Stream) {
	o, err := parseOpening(opened)
	if err != nil {
		in.Refuse(refusedBadOpening, err.Error())
		return
	}
	log := p.Log.With("peer", peer, "client", o.client, "server", o.server)
	if p.isDraining() { // before the server's one accept is used up
		in.Refuse(refusedBusy, "the proxy is about to end")
		return
	}
	rules := p.settings.Load().mayDial(peer)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-in.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	var c *net.TCPConn
	if err = allowed(rules, p.Own, net.InterfaceAddrs, o.server); err == nil {
		c, err = dial(ctx, o.server, p.Control)
	}
	if err != nil {
		code := refusal(err)
		log.Warn("peer's connection refused", "reason", refusedAs(code), "err", err)
		in.Refuse(code, err.Error())
		return
	}
	defer reset(c)
	p.carry(&connection{shared: p, conn: c, stream: accept(), peer: peer, log: log}, o, parser.Server)
}

// carry carries an open connection until it ends.
func (p *Proxy) carry(c *connection, o opening, own parser.Side) {
	job := p.settings.Load().jobOf(o.client.Addr(), o.server.Addr())
	c.job, c.lossyAggregates = job.Name, job.LossyAggregates
	if p.PeerCodecs != nil {
		c.codecs = p.PeerCodecs(c.peer)
	}
	c.conn.SetKeepAliveConfig(keepAlive)
	if !p.enter(c) {
		c.abort(resetByApp)
		return
	}
	defer p.leave(c)
	p.Metrics.carries(c.peer, clientSide(own), 1)
	defer p.Metrics.carries(c.peer, clientSide(own), -1)
	c.log.Debug("connection carried", "job", job.Name)
	how := c.carry(parser.Conn{Job: job.Name, Client: o.client, Server: o.server, Number: o.number,
		Ranks: job.Ranks, Sums: job.Sums, Own: own})
	p.Metrics.endedAs(c.peer, how)
	c.log.Debug("connection ended", "how", how)
}

func clientSide(own parser.Side) string {
	if own == parser.Client {
		return "here"
	}
	return "there"
}

// parsers returns the parser of what the own app sends and the one of what is delivered to it. recognized is called
// with the name of the protocol once its parser has seen a tensor.
func (p *Proxy) parsers(c parser.Conn, recognized func(string)) (own, other parser.Parser) {
	if len(p.Protocols) == 0 {
		return parser.Verbatim{}, nil
	}
	var fromClient, fromServer []parser.Parser
	for _, protocol := range p.Protocols {
		a, b := protocol.New(c)
		fromClient = append(fromClient, a)
		fromServer = append(fromServer, b)
	}
	if c.Own == parser.Server {
		fromClient, fromServer = fromServer, fromClient
	}
	for i, protocol := range p.Protocols {
		fromClient[i] = &named{Parser: fromClient[i], name: protocol.String(), seen: recognized}
	}
	return guarded{parser.First(fromClient...)}, guarded{parser.First(fromServer...)}
}

// named tells whose tensor it was that was seen first.
type named struct {
	parser.Parser
	name string
	seen func(string)
}

func (n *named) Next(b []byte) (parser.Segment, error) {
	seg, err := n.Parser.Next(b)
	if err == nil && seg.Tensor.Size > 0 && n.seen != nil {
		n.seen(n.name)
		n.seen = nil
	}
	return seg, err
}

// guarded makes a parser's panic, and an answer that no parser may give, an error: the stream then travels verbatim.
type guarded struct{ parser.Parser }

func (g guarded) Next(b []byte) (seg parser.Segment, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("proxy: parser: panic: %v", p)
		}
	}()
	seg, err = g.Parser.Next(b)
	if err == nil && (seg.Len < 1 || seg.Len > len(b)) {
		err = fmt.Errorf("proxy: parser classified %d bytes of %d", seg.Len, len(b))
	}
	return seg, err
}

// enter notes a connection, unless the Proxy is draining.
func (p *Proxy) enter(c *connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return false
	}
	p.live[c] = struct{}{}
	return true
}

func (p *Proxy) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

func (p *Proxy) leave(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
	if p.draining && len(p.live) == 0 {
		close(p.idle)
	}
}

// Drain takes no new connections and waits until those that exist have ended, or resets them when ctx is done.
func (p *Proxy) Drain(ctx context.Context) error {
	p.mu.Lock()
	if !p.draining {
		p.draining = true
		if len(p.live) == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
	}
	n := p.resetAll()
	<-p.idle
	return fmt.Errorf("proxy: drain: %d connections were still open and were reset: %w", n, ctx.Err())
}

// Close resets every connection and ends the workers.
func (p *Proxy) Close() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p.Drain(done)
	p.pool.Close()
	p.quiet.Flush()
}

func (p *Proxy) resetAll() int {
	p.mu.Lock()
	live := make([]*connection, 0, len(p.live))
	for c := range p.live {
		live = append(live, c)
	}
	p.mu.Unlock()
	for _, c := range live {
		c.abort(resetByApp)
	}
	return len(live)
}

func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
