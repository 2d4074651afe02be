package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
	"github.com/gradproxy/gradproxy/tensor"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

var (
	chaosFirst = flag.Uint64("chaos.first", 1, "first seed of TestChaos")
	chaosSeeds = flag.Int("chaos.seeds", 0, "seeds of TestChaos; 0: 12, or 200 where long tests are asked for")
	chaosRows  = flag.String("chaos.rows", "", "file to which TestChaos appends one JSON object for each seed; \"\": none")
)

// A chaosRow is the outcome of a seed.
type chaosRow struct {
	Seed     uint64            `json:"seed"`
	Real     bool              `json:"real"` // processes, not virtual time
	Faults   []string          `json:"faults"`
	Streams  int               `json:"streams"`
	Complete int               `json:"complete"` // streams whose two directions arrived whole
	Reset    int               `json:"reset"`    // the others
	Bytes    int               `json:"bytes"`    // that arrived at apps
	Replayed uint64            `json:"replayed"` // bytes that left again
	Frames   map[string]uint64 `json:"frames"`   // that came at either site, by kind
	Outcome  string            `json:"outcome"`  // "ok", or the broken promise
	Seconds  float64           `json:"seconds"`  // of virtual time
}

// Whatever happens to two sites and to the network between them, no byte is lost, doubled or changed unseen: every
// connection of the job is complete and equal, or reset. It is reset only where there is a reason, and nothing is left
// when all is over.
func TestChaos(t *testing.T) {
	seeds := *chaosSeeds
	if seeds == 0 {
		if seeds = 12; os.Getenv(require.LongVariable) != "" {
			seeds = 200
		}
	}
	frames := map[string]uint64{}
	for seed := *chaosFirst; seed < *chaosFirst+uint64(seeds); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			for kind, n := range playSeed(t, seed) {
				frames[kind] += n
			}
		})
	}
	if t.Logf("frames: %v", frames); seeds < 200 || t.Failed() {
		return
	}
	for kind := range frame.Kinds() {
		if frames[kind.String()] == 0 && !chaosLacks[kind] {
			t.Errorf("no %v frame in %d seeds: they show nothing of such", kind, seeds)
		}
	}
}

// chaosLacks are the kinds of frames that TestChaos has none of: chaosProtocol tells no parts of values and no masks,
// and rest is TestChaosAtRest's.
var chaosLacks = map[frame.Kind]bool{frame.Parts: true, frame.Mask: true, frame.Rest: true}

// playSeed plays one seed in virtual time, and returns the frames that have come, by kind.
func playSeed(t *testing.T, seed uint64) map[string]uint64 {
	row := chaosRow{Seed: seed, Outcome: "it has ended before it was judged"}
	defer row.write(t) // also of a seed that fails, which ends this goroutine
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		h := newChaos(t, seed)
		h.play()
		row.Seconds = time.Since(begin).Seconds()
		h.judge(&row)
	})
	return row.Frames
}

// write appends the row to the file that is asked for.
func (r *chaosRow) write(t *testing.T) {
	if *chaosRows == "" {
		return
	}
	f, err := os.OpenFile(*chaosRows, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(r); err != nil {
		t.Fatal(err)
	}
}

// A chaos is two sites, a network, a job, and the faults that happen to them.
type chaos struct {
	t       *testing.T
	metrics *Metrics   // of all proxies
	r       *rand.Rand // of the plan; concurrent parts have generators of their own
	net     *wayNet
	dir     string
	resume  time.Duration
	skew    atomic.Int64 // of the sites' clocks
	sites   [2]*chaosSite
	values  [][]byte
	log     *slog.Logger

	mu        sync.Mutex
	ports     uint16
	exchanges map[uint16]*exchange
	order     []*exchange
	disturbed []interval // when streams had to be reset
	faults    []string
	wrong     []string // broken promises that are not about connections
	replayed  uint64
	job       sync.WaitGroup
}

var appAddr = [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")}

func newChaos(t *testing.T, seed uint64) *chaos {
	h := &chaos{t: t, metrics: NewMetrics(prometheus.NewRegistry()), r: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), resume: 10 * time.Minute, exchanges: map[uint16]*exchange{}}
	h.log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.rotate()
	link := func(way uint64) wansim.Link {
		return wansim.Link{Rate: 200_000 + h.r.Int64N(4_000_000), Delay: time.Duration(h.r.IntN(80)) * time.Millisecond,
			Jitter: time.Duration(h.r.IntN(10)) * time.Millisecond, Loss: float64(h.r.IntN(2)) * 0.02 * h.r.Float64(), Seed: seed<<1 | way}
	}
	h.net = &wayNet{ab: link(0), ba: link(1), listeners: map[netip.AddrPort]*wayListener{}, conns: map[*wayConn]*wayConn{}}
	w, train := weights(h.r, 500+h.r.IntN(6000))
	for range 2 + h.r.IntN(5) {
		train()
		h.values = append(h.values, bytes.Clone(w))
	}
	if h.r.IntN(8) == 0 {
		h.resume = 40 * time.Second
	}
	both, carriers, memory := h.r.IntN(3) == 0, 1+h.r.IntN(3), []int64{1, 1 << 20, 64 << 20}[h.r.IntN(3)]
	for i, name := range []string{"paris", "tokyo"} {
		h.sites[i] = &chaosSite{h: h, i: i, name: name, dying: make(chan struct{}, 1), carriers: carriers, policy: h.r.IntN(len(chaosPolicies)), dials: i == 0 || both,
			memory: memory, room: []int64{-1, 20_000, 1 << 20}[h.r.IntN(3)],
			addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), 7443)}
	}
	for _, s := range h.sites {
		s.start()
	}
	return h
}

// rotate gives both sites new certificates.
func (h *chaos) rotate() {
	if _, err := pki.Write(pki.Options{Dir: h.dir, Domain: "lab", Sites: []string{"paris", "tokyo"}, Force: true}); err != nil {
		h.t.Error(err)
	}
}

// chaosPolicies are the policies of sites; a reload takes another one.
var chaosPolicies = [][]policy.Rule{
	nil,
	{{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"}},
	{{Roles: []tensor.Role{tensor.Gradient}, Codec: "int4"}, {Roles: []tensor.Role{tensor.State}, Codec: policy.Verbatim}},
	{{Roles: []tensor.Role{tensor.Gradient}, Codec: "bf16"}, {Codec: "lossless(level=fast)"}},
	{{Roles: []tensor.Role{tensor.Gradient}, Codec: "fp16", NoFeedback: true}, {MinBytes: 10_000, Codec: policy.Verbatim}},
}

// A chaosSite is a site, whose proxy may die and come back.
type chaosSite struct {
	h            *chaos
	i            int // its place in h.sites
	name         string
	carriers     int
	dials        bool
	memory, room int64
	addr         netip.AddrPort // where its tunnel listens; guarded by h.mu

	dying  chan struct{} // full from a death to the next start
	taken  []takenOver   // by the process that starts next
	policy int           // in chaosPolicies
	saved  []byte
	live   atomic.Pointer[incarnation]
}

// An incarnation is the proxy of a site between two deaths.
type incarnation struct {
	site     *chaosSite
	endpoint *tunnel.Endpoint
	proxy    *Proxy
	listener *wayListener
	dead     atomic.Bool
	opened   chan struct{} // closed once endpoint is there

	mu   sync.Mutex
	apps map[*wayConn]bool // the proxy's ends of apps' connections
	lent sync.Map          // of *app.Conn: its *lentConn
	runs sync.WaitGroup
}

func (s *chaosSite) other() *chaosSite { return s.h.sites[1-s.i] }

// peers are the peers as the site's configuration has them.
func (s *chaosSite) peers() []tunnel.Peer {
	o := s.other()
	p := tunnel.Peer{Name: o.name, ID: "spiffe://lab/" + o.name}
	if s.dials {
		s.h.mu.Lock()
		p.Dial = o.addr.String()
		s.h.mu.Unlock()
	}
	return []tunnel.Peer{p}
}

// settings are the proxy's, with the policy of the moment.
func (s *chaosSite) settings() Settings {
	chosen, err := policy.New(chaosPolicies[s.policy], chaosCodecs)
	if err != nil {
		s.h.t.Fatal(err)
	}
	here, there := netip.PrefixFrom(appAddr[s.i], 16), netip.PrefixFrom(appAddr[1-s.i], 16)
	return Settings{Policy: chosen, Peers: []Peer{{Name: s.other().name, Networks: []netip.Prefix{there}}},
		Jobs: []Job{{Name: "job", Networks: []netip.Prefix{here, there}}}}
}

func (s *chaosSite) start() {
	n := &incarnation{site: s, apps: map[*wayConn]bool{}, opened: make(chan struct{})}
	var err error
	n.proxy, err = New(Config{Codecs: chaosCodecs, Protocols: []parser.Protocol{chaosProtocol{}}, Settings: s.settings(), Memory: s.memory, Values: s.room, Metrics: s.h.metrics,
		Workers: 2, Log: s.h.log.With("site", s.name), Open: func(ctx context.Context, peer string, opening []byte) (Stream, error) {
			<-n.opened
			st, err := n.endpoint.Open(ctx, peer, opening)
			if err != nil {
				return nil, err
			}
			return st, nil
		}})
	if err != nil {
		s.h.t.Fatal(err)
	}
	n.adopt()
	if s.saved != nil {
		if err := n.proxy.Residuals().Load(bytes.NewReader(s.saved)); err != nil {
			s.h.wrongly("saved residuals are not read: %v", err)
		}
	}
	up := make(chan struct{}) // closed once n is complete
	n.endpoint, err = tunnel.New(tunnel.Config{Name: s.name, Peers: s.peers(), Resume: s.h.resume, Carriers: s.carriers, Memory: 16 << 20,
		Identity: tunnel.Identity{Cert: filepath.Join(s.h.dir, s.name+".pem"), Key: filepath.Join(s.h.dir, s.name+".key"), CA: filepath.Join(s.h.dir, "ca.pem")},
		Now:      func() time.Time { return time.Now().Add(time.Duration(s.h.skew.Load())) },
		Dial:     s.h.net.dial, Logger: s.h.log.With("site", s.name),
		Events: tunnel.Events{SessionLost: func(string, error) { go s.h.disturb()() }},
		Accept: func(peer string, opening []byte, in *tunnel.Incoming) { <-up; n.accept(peer, opening, in) }})
	if err != nil {
		s.h.t.Fatal(err)
	}
	s.h.mu.Lock()
	addr := s.addr
	s.h.mu.Unlock()
	n.listener = s.h.net.listen(addr).(*wayListener)
	s.live.Store(n)
	close(up)
	close(n.opened)
	go n.endpoint.Serve(n.listener)
}

// disturb notes that streams have to be reset from now on, until end is called.
func (h *chaos) disturb() (end func()) {
	from := time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.disturbed = append(h.disturbed, interval{from, time.Now()})
	}
}

func (h *chaos) wrongly(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

// appEnds returns an app's end of a connection and the proxy's.
func (n *incarnation) appEnds(local, remote netip.AddrPort) (appEnd, proxyEnd *wayConn) {
	host := wansim.Link{Delay: 50 * time.Microsecond}
	appEnd, proxyEnd = connectWays(host, host, local, remote)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.apps[proxyEnd] = true
	proxyEnd.closed = func(c *wayConn) {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.apps, c)
	}
	return appEnd, proxyEnd
}

// accept is the tunnel's Accept: it starts the server app of the exchange.
func (n *incarnation) accept(peer string, opening []byte, in *tunnel.Incoming) {
	n.runs.Add(1)
	defer n.runs.Done()
	if len(opening) > 0 && opening[0] != frame.OpeningVersion {
		n.proxy.Accept(peer, opening, in, func() Stream { return in.Accept() }, func() {})
		return
	}
	o, err := frame.ParseOpening(opening)
	if err != nil || n.dead.Load() {
		in.Refuse(frame.RefusedBadOpening, "no server")
		return
	}
	h := n.site.h
	h.mu.Lock()
	e := h.exchanges[o.Server.Port()]
	delete(h.exchanges, o.Server.Port()) // one opening, one server
	h.mu.Unlock()
	if e == nil {
		h.wrongly("port %d was dialled twice", o.Server.Port())
		in.Refuse(frame.RefusedByServer, "no server")
		return
	}
	server, end := n.appEnds(o.Server, o.Client)
	e.left.Go(func() { e.run(1, server) })
	lent := &lentConn{wayConn: end}
	n.proxy.carryAt(n.holds(lent), in.Accept(), peer, h.log.With("site", n.site.name, "server", o.Server), o, parser.Server, noCalls, func() {})
	app.Reset(lent)
}

func noCalls() parser.Calls { return nil }

// connect is an app that connects to a server of the other site, and again where it is refused.
func (s *chaosSite) connect(kind traffic, scripts [2]script) {
	h := s.h
	for range 600 {
		h.mu.Lock()
		port := firstPort + h.ports*uint16(kinds) + uint16(kind)
		h.ports++
		e := &exchange{port: port, scripts: scripts, begun: time.Now()}
		h.exchanges[port] = e
		h.mu.Unlock()
		n := s.live.Load()
		if n == nil || n.dead.Load() || !n.open(e) {
			time.Sleep(time.Second)
			continue
		}
		e.left.Wait()
		h.mu.Lock()
		h.order = append(h.order, e)
		h.mu.Unlock()
		return
	}
	h.wrongly("a connection of kind %d has not come about in 600 attempts", kind)
}

// open opens an exchange's connection, and lets it run until it has ended.
func (n *incarnation) open(e *exchange) bool {
	n.runs.Add(1)
	defer n.runs.Done()
	s := n.site
	o := frame.Opening{Client: netip.AddrPortFrom(appAddr[s.i], e.port), Server: netip.AddrPortFrom(appAddr[1-s.i], e.port), Tag: n.proxy.tags.Add(1)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	st, err := n.endpoint.Open(ctx, s.other().name, o.Append(nil))
	if err != nil {
		s.h.log.Debug("opening failed", "site", s.name, "err", err)
		s.h.mu.Lock()
		_, untouched := s.h.exchanges[e.port]
		if !untouched { // the server was there, and then the way to it was lost
			s.h.order = append(s.h.order, e)
			e.reset, e.sides[0].over, e.sides[0].end = true, time.Now(), err
		}
		s.h.mu.Unlock()
		return false
	}
	client, end := n.appEnds(o.Client, o.Server)
	e.left.Go(func() { e.run(0, client) })
	lent := &lentConn{wayConn: end}
	n.proxy.carryAt(n.holds(lent), st, s.other().name, s.h.log.With("site", s.name, "server", o.Server), o, parser.Client, noCalls, func() {})
	app.Reset(lent)
	return true
}

// play runs the job and the faults.
func (h *chaos) play() {
	time.Sleep(time.Second) // sessions come up
	for range 3 + h.r.IntN(8) {
		kind := traffic(h.r.IntN(int(kinds)))
		from, scripts := h.sites[h.r.IntN(2)], newScripts(h.r, kind, h.values)
		after := time.Duration(h.r.IntN(10_000)) * time.Millisecond
		h.job.Go(func() {
			time.Sleep(after)
			from.connect(kind, scripts)
		})
	}
	for range 1 + h.r.IntN(5) {
		f := chaosFaults[h.r.IntN(len(chaosFaults))]
		after, r := time.Duration(h.r.IntN(15_000))*time.Millisecond, rand.New(rand.NewPCG(h.r.Uint64(), 1))
		h.faults = append(h.faults, f.name)
		h.job.Go(func() {
			time.Sleep(after)
			f.do(h, r)
		})
	}
	done := make(chan struct{})
	go func() { h.job.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Hour):
		h.wrongly("the job has not ended in two hours")
	}
	time.Sleep(30 * time.Second)
	for _, s := range h.sites {
		s.live.Load().stop(false)
	}
	for _, e := range h.order {
		e.left.Wait()
	}
}

// stop ends a proxy: as the operator does, or as kill -9 does, after which the network hears from the kernel alone.
func (n *incarnation) stop(kill bool) {
	n.dead.Store(true)
	h := n.site.h
	for _, st := range n.endpoint.Stats() {
		h.mu.Lock()
		h.replayed += st.Replayed
		h.mu.Unlock()
	}
	if kill {
		n.mu.Lock()
		apps := n.apps
		n.apps = map[*wayConn]bool{}
		n.mu.Unlock()
		for c := range apps {
			c.abort()
		}
	}
	n.listener.Close()
	n.proxy.Close()
	n.endpoint.Close()
	n.runs.Wait()
	env := n.proxy.env
	if s, r, b := env.Sending.Used(), env.Receiving.Used(), env.Buffers.InUse(); s != 0 || r != 0 || b != 0 {
		h.wrongly("%s holds %d and %d bytes of the budgets and %d of buffers when all is over", n.site.name, s, r, b)
	}
}

// judge checks all promises, and fills in the row.
func (h *chaos) judge(row *chaosRow) {
	synctest.Wait() // until the ends of sessions are noted
	h.mu.Lock()
	defer h.mu.Unlock()
	row.Faults, row.Streams, row.Replayed, row.Frames = h.faults, len(h.order), h.replayed, map[string]uint64{}
	for k := range frame.Kinds() {
		row.Frames[k.String()] = h.metrics.frames.Of(k)
	}
	wrong := h.wrong
	for _, e := range h.order {
		if f := e.fault(h.disturbed); f != "" {
			wrong = append(wrong, fmt.Sprintf("port %d (kind %d): %s", e.port, e.kind(), f))
		}
		if e.complete() {
			row.Complete++
		} else {
			row.Reset++
		}
		row.Bytes += len(e.sides[0].got) + len(e.sides[1].got)
	}
	row.Outcome = "ok"
	if len(wrong) > 0 {
		row.Outcome = strings.Join(wrong, "; ")
		h.t.Errorf("seed %d, %s: %s", row.Seed, strings.Join(h.faults, ", "), row.Outcome)
	}
}

// chaosFaults are the faults that may happen. Times are in virtual seconds.
var chaosFaults = []struct {
	name string
	do   func(h *chaos, r *rand.Rand)
}{
	{"kill", func(h *chaos, r *rand.Rand) {
		s := h.sites[r.IntN(2)]
		s.dying <- struct{}{}
		defer func() { <-s.dying }()
		defer h.disturb()()
		old := s.live.Load()
		old.dead.Store(true)
		h.net.each(func(a, b *wayConn) { a.abort() })
		old.stop(true)
		pause(r, 8*time.Second)
		s.start()
	}},
	{"stop", func(h *chaos, r *rand.Rand) {
		until := time.Now().Add(time.Duration(r.Int64N(int64(40 * time.Second))))
		n := h.sites[r.IntN(2)].live.Load()
		freeze := func(c *wayConn) {
			c.in.change(func() { c.in.until = until })
			c.out.change(func() { c.out.until = until })
		}
		n.mu.Lock()
		for c := range n.apps {
			freeze(c)
		}
		n.mu.Unlock()
		h.net.each(func(a, _ *wayConn) { freeze(a) })
	}},
	{"reset carrier", func(h *chaos, r *rand.Rand) { h.some(r, func(a, _ *wayConn) { a.abort() }) }},
	{"reset all carriers often", func(h *chaos, r *rand.Rand) {
		for range 1 + r.IntN(20) {
			h.net.each(func(a, _ *wayConn) { a.abort() })
			pause(r, 2*time.Second)
		}
	}},
	{"end carrier", func(h *chaos, r *rand.Rand) { h.some(r, func(a, b *wayConn) { oneOf(r, a, b).CloseWrite() }) }},
	{"black hole", func(h *chaos, r *rand.Rand) { h.net.cut(time.Duration(r.IntN(60_000))*time.Millisecond, true, true) }},
	{"black hole one way", func(h *chaos, r *rand.Rand) {
		there := r.IntN(2) == 0
		h.net.cut(time.Duration(r.IntN(60_000))*time.Millisecond, there, !there)
	}},
	{"carrier forgotten", func(h *chaos, r *rand.Rand) { h.some(r, func(a, _ *wayConn) { a.vanish() }) }},
	{"carrier forgotten one way", func(h *chaos, r *rand.Rand) {
		h.some(r, func(a, b *wayConn) {
			w := oneOf(r, a, b).out
			w.change(func() { w.hole = true })
		})
	}},
	{"bit flips", tampers(flip)},
	{"duplicates", tampers(duplicate)},
	{"reordering", tampers(swap)},
	{"omissions", tampers(omit)},
	{"mtu", func(h *chaos, r *rand.Rand) {
		h.net.setMTU(1000 + r.IntN(500))
		pause(r, 40*time.Second)
		h.net.setMTU(0)
		h.net.each(func(a, _ *wayConn) { a.vanish() }) // connections that are stuck
	}},
	{"address", func(h *chaos, r *rand.Rand) {
		s := h.sites[1]
		h.mu.Lock()
		from := s.addr
		s.addr = netip.AddrPortFrom(from.Addr().Next().Next(), from.Port())
		to := s.addr
		h.mu.Unlock()
		h.net.move(from, to)
		pause(r, 5*time.Second)
		h.sites[0].reload(h)
	}},
	{"clock", func(h *chaos, r *rand.Rand) {
		jumps := []time.Duration{time.Hour, -time.Hour, 300 * 24 * time.Hour, 20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour}
		h.skew.Store(int64(jumps[r.IntN(len(jumps))]))
		pause(r, 30*time.Second)
		h.skew.Store(0)
	}},
	{"full disk", func(h *chaos, r *rand.Rand) {
		n := h.sites[r.IntN(2)].live.Load()
		var whole, part bytes.Buffer
		if err := n.proxy.Residuals().Save(&whole); err != nil {
			h.wrongly("residuals are not saved: %v", err)
		}
		err := n.proxy.Residuals().Save(&fullDisk{&part, whole.Len() / 2})
		if !errors.Is(err, errDiskFull) {
			h.wrongly("residuals that find no room are saved with %v", err)
		}
		n.site.h.mu.Lock()
		n.site.saved = whole.Bytes()
		n.site.h.mu.Unlock()
	}},
	{"reload", func(h *chaos, r *rand.Rand) {
		for range 1 + r.IntN(10) {
			s := h.sites[r.IntN(2)]
			h.mu.Lock()
			s.policy = r.IntN(len(chaosPolicies))
			h.mu.Unlock()
			s.reload(h)
			pause(r, 2*time.Second)
		}
	}},
	{"certificates", func(h *chaos, r *rand.Rand) {
		for range 1 + r.IntN(4) {
			h.rotate()
			pause(r, 5*time.Second)
		}
	}},
	{"peer removed", func(h *chaos, r *rand.Rand) {
		s := h.sites[r.IntN(2)]
		defer h.disturb()()
		if n := s.live.Load(); n.endpoint.SetPeers(nil) != nil && !n.dead.Load() {
			h.wrongly("the peer cannot be taken out")
		}
		pause(r, 5*time.Second)
		s.reload(h)
	}},
}

// reload gives the site its configuration again.
func (s *chaosSite) reload(h *chaos) {
	n := s.live.Load()
	h.mu.Lock()
	set := s.settings()
	h.mu.Unlock()
	n.proxy.Apply(set)
	if err := n.endpoint.SetPeers(s.peers()); err != nil && !n.dead.Load() {
		h.wrongly("reload: %v", err)
	}
}

// some calls f for some carriers, at least one.
func (h *chaos) some(r *rand.Rand, f func(a, b *wayConn)) {
	first := true
	h.net.each(func(a, b *wayConn) {
		if first || r.IntN(2) == 0 {
			f(a, b)
		}
		first = false
	})
}

// tampers returns a fault that does how to some bytes of carriers, several times.
func tampers(how tamper) func(h *chaos, r *rand.Rand) {
	return func(h *chaos, r *rand.Rand) {
		for range 1 + r.IntN(6) {
			h.some(r, func(a, b *wayConn) {
				w := oneOf(r, a, b).out
				w.change(func() { w.tamper = append(w.tamper, slices.Repeat([]tamper{how}, 1+r.IntN(3))...) })
			})
			pause(r, 3*time.Second)
		}
	}
}

func oneOf(r *rand.Rand, a, b *wayConn) *wayConn {
	if r.IntN(2) == 0 {
		return a
	}
	return b
}

// pause waits for up to limit.
func pause(r *rand.Rand, limit time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(limit)))) }

// A fullDisk takes room bytes and no more.
type fullDisk struct {
	w    *bytes.Buffer
	room int
}

var errDiskFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.w.Write(p[:n])
	if d.room -= n; n < len(p) {
		return n, errDiskFull
	}
	return n, nil
}
