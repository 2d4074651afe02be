// Package site runs one site's proxy as a configuration describes it: the listeners, the rules, the tunnels, the proxy
// between them, and the logs, metrics and pages for an operator.
package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/upgrade"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/warden"
	codecs "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	parsers "github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/logsample"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A Site is one site's proxy.
type Site struct {
	log       *slog.Logger
	version   string
	registry  *prometheus.Registry
	counts    *counts
	metrics   *proxy.Metrics
	money     *ledger
	budgets   *allowances
	limits    shares
	maxPlaces int              // places that the descriptors have room for
	places    intercept.Places // of the descriptors for connections

	proxy     *proxy.Proxy
	tunnel    *tunnel.Endpoint
	opened    <-chan struct{} // closed when tunnel is there, or will not be
	carriers  net.Listener    // of the tunnel; nil: off
	admin     net.Listener    // nil: off
	forwards  []*intercept.Forward
	redirect  interceptor   // nil: off
	residuals *residualFile // nil: no residuals outlive the process
	observed  *observer     // for the page
	saved     []*savedFile  // records that outlive the process
	probed    *probed       // nil: no process is probed

	warden *warden.Client // nil: no process keeps rights

	upgrades *upgrade.Listener // nil: no process can take over
	handing  sync.Mutex        // held while everything is being handed over; guards the fields below
	ending   bool              // nothing is handed over any more
	giver    *upgrade.Giver    // to the process that has taken over; nil: none has; does not change once ending is set
	kept     time.Time         // when a hand-over failed last

	receivers receivers // of metrics

	reloading sync.Mutex                    // one Reload at a time
	config    atomic.Pointer[config.Config] // in force; its content does not change
	started   *config.Config                // in force for keys that need a restart
	fitted    *config.Config                // started, with the sizes and the carrier that are in force
	allowed   memoryLimit                   // of the memory of this process
	draining  atomic.Bool
	bypassed  atomic.Pointer[error] // why the rules are not refreshed; nil: they are

	ports    []uint16 // that Confine left to this process; nil: any
	untraced bool     // Confine took the rights from this process that probes take
}

// Start opens everything for which c asks. The rules of the redirect come last before the proxy itself, so that
// connections are taken only where they can be carried. c must have been checked and identified. version is shown to
// operators. If Start fails after the rules came, it removes them, except the rules that refuse connections on the
// death of the proxy: they stay, as after Run.
func Start(c *config.Config, version string, log *slog.Logger) (*Site, error) {
	s := &Site{log: slog.New(logsample.New(log.Handler())), version: version}
	s.config.Store(c)
	s.started = c
	s.allowed = memoryAllowed()
	fitted, err := budgeted(c, s.allowed, s.log)
	if err != nil {
		return nil, err
	}
	s.fitted = fitted
	parcel, err := s.takeOver(c)
	if err != nil {
		return nil, err
	}
	if err := s.open(fitted, parcel); err != nil {
		if parcel != nil {
			parcel.Close()
			err = fmt.Errorf("%w (the connections that were taken over from process %d are reset)", err, parcel.PID)
		}
		leave := s.redirect != nil && c.Intercept.Refuse && s.takenBefore()
		if leave {
			err = fmt.Errorf("%w (on_death: %s: new connections %s until this proxy starts)", err, onDeath(c), undecided(c))
		}
		return nil, errors.Join(err, s.release(leave))
	}
	if parcel != nil {
		parcel.Close() // listeners that the configuration no longer has
	}
	return s, nil
}

// takenBefore reports whether the processes whose connections are taken may have run before this one, and may have been
// refused already.
func (s *Site) takenBefore() bool {
	h, ok := s.redirect.(*hooked)
	return !ok || !h.own
}

// open opens the parts of the site, lowest first, and takes over the listeners and connections of parcel, which may be
// nil. After an error the caller must release the opened ones.
func (s *Site) open(c *config.Config, parcel *upgrade.Parcel) error {
	s.budgets = &allowances{log: s.log, clock: time.Now, bytes: s.linkBytes}
	stages, hold := s.budgets.plan(c)
	settings, err := settingsOf(c, stages)
	if err != nil {
		return err
	}
	hold()
	s.divide(s.log)
	if err := s.listen(c, parcel); err != nil {
		return err
	}
	s.registry = prometheus.NewRegistry()
	s.counts = newCounts(s.registry, s.version)
	s.counts.expect(c.Peers)
	s.probe(c)
	if err := s.keepOptions(c); err != nil {
		return err
	}
	if err := s.intercept(c); err != nil {
		return err
	}
	if s.proxy, err = s.newProxy(c, settings); err != nil {
		return err
	}
	s.registry.MustRegister(&shadowCollector{s.shadow})
	if err := s.openFiles(c, parcel); err != nil {
		return err
	}
	if c.Upgrade.Socket != "" {
		if s.upgrades, err = upgrade.Listen(c.Upgrade.Socket); err != nil {
			return fmt.Errorf("upgrade.socket %s: %w", c.Upgrade.Socket, err)
		}
	}
	tunnels := s.tunnelConfig(c)
	opened := make(chan struct{}) // until then a connection that was taken over asks for no stream
	defer close(opened)
	s.opened = opened
	s.adopt(parcel)
	s.tunnel, err = tunnel.New(tunnels)
	if err != nil {
		return err
	}
	if s.residuals != nil {
		s.saved = append(s.saved, newSavedFile(sources{s.tunnel}, "addresses from which peers have come", c.State.Dir, c.Site+".sources", stateKey(c), s.residuals.failed, s.log),
			newSavedFile(choices{s.tunnel}, "carriers chosen for peers", c.State.Dir, c.Site+".choices", stateKey(c), s.residuals.failed, s.log))
	}
	s.money.setPrices(c.Peers, nil)
	s.registry.MustRegister(&tunnelCollector{s.tunnel, s.money}, s.observed, s.budgets)
	return nil
}

// listen opens the listeners of the admin pages, of carriers and of forwards, which may be in parcel already.
func (s *Site) listen(c *config.Config, parcel *upgrade.Parcel) (err error) {
	if c.Admin != config.Off {
		if s.admin, err = admin.Listen(c.Admin); err != nil {
			return err
		}
	}
	if c.Tunnel.Listen != config.Off {
		if s.carriers, err = s.listenCarriers(&c.Tunnel); err != nil {
			return err
		}
	}
	for _, f := range c.Forward {
		l, err := inherited(parcel, f.Listen)
		if err != nil {
			return err
		}
		if l != nil {
			s.forwards = append(s.forwards, intercept.Inherit(l, f.Target, s.places, s.log))
			continue
		}
		forward, err := intercept.NewForward(f.Listen, f.Target, s.places, s.log)
		if err != nil {
			return err
		}
		s.forwards = append(s.forwards, forward)
	}
	return nil
}

// newProxy returns the site's proxy. It needs places, limits, counts and redirect.
func (s *Site) newProxy(c *config.Config, settings proxy.Settings) (*proxy.Proxy, error) {
	var calls func(conn syscall.Conn, far netip.AddrPort) parser.Calls
	if s.probed != nil {
		calls = s.calls
	}
	s.metrics = proxy.NewMetrics(s.registry)
	s.money = &ledger{raw: s.metrics.RawBytes}
	s.observed = newObserver(s, s.metrics)
	return proxy.New(proxy.Config{
		Open: s.openStream, Await: s.await, DirectFirst: c.Intercept.DirectFirst, Codecs: codecs.New, PeerCodecs: s.peerCodecs, Excerpt: func(peer string) []byte { return s.config.Load().Excerpt(peer) }, View: s.view, Protocols: parsers.Protocols(), Settings: settings,
		AsClient: s.asClient(c), Own: s.own(), Calls: calls, Places: s.places, Pipes: s.limits.pipes, PollGates: s.limits.pollGates, Answer: c.Tunnel.Resume, Memory: c.Memory, Values: values(c), Residuals: c.State.Memory, Log: s.log, Metrics: s.metrics, Control: s.control(c),
	})
}

// probe has jobs probed where that may be of use, by a process that is not in the cgroup to which intercept moves this
// one.
func (s *Site) probe(c *config.Config) {
	p := newProbed(s.registry, s.log) // its metrics are there on each site
	if !probesJobs(c) {
		return
	}
	s.probed = p
	permitted := errLossless
	if c.MayLose() {
		permitted = probe.Permitted()
	}
	p.begin(permitted)
}

// openFiles opens the files of state.dir.
func (s *Site) openFiles(c *config.Config, parcel *upgrade.Parcel) (err error) {
	open := newResidualFile
	if s.inherit(parcel) {
		open = inheritResidualFile
	}
	if c.State.Dir != "" {
		if s.residuals, err = open(s.proxy.Residuals(), c.State.Dir, c.Site, stateKey(c), s.registry, s.log); err != nil {
			return err
		}
	}
	if s.residuals != nil {
		s.saved = append(s.saved, newSavedFile(&s.observed.history, "history of the page", c.State.Dir, c.Site+".history", stateKey(c), s.residuals.failed, s.log),
			newSavedFile(s.budgets, "the day's use of budgets", c.State.Dir, c.Site+".budgets", stateKey(c), s.residuals.failed, s.log))
	}
	return nil
}

// calls returns the collectives that are seen of the process at the other end of a connection; nil where nothing may be
// lost, so that nothing needs a proof.
func (s *Site) calls(conn syscall.Conn, far netip.AddrPort) parser.Calls {
	if !s.config.Load().MayLose() {
		return nil
	}
	return s.probed.of(conn, far)
}

// understood returns the names in the hello: codecs, excerpts of settings, views of traffic, shared values if there is
// room for them, that connections can rest, and that blocks may be short.
func understood(c *config.Config) []string {
	names := append(codecs.Names(), proxy.Excerpts, proxy.Views)
	if c.References > 0 {
		names = append(names, proxy.SharedValues, proxy.SharedParts, proxy.Models, proxy.ShortValues)
	}
	return append(names, proxy.HandOver, proxy.Short, proxy.Checksums, proxy.Masks)
}

// values returns the room for values shared with a peer, as package proxy writes it.
func values(c *config.Config) int64 {
	if c.References == 0 {
		return -1
	}
	return c.References
}

// view returns this site's view of its traffic with a peer; nil: the tunnel is not there yet.
func (s *Site) view(peer string) []byte {
	select {
	case <-s.opened:
	default:
		return nil
	}
	if s.tunnel == nil {
		return nil
	}
	return s.observed.view(peer)
}

func (s *Site) openStream(ctx context.Context, peer string, opening []byte) (proxy.Stream, error) {
	<-s.opened
	if s.tunnel == nil {
		return nil, tunnel.ErrClosed
	}
	stream, err := s.tunnel.Open(ctx, peer, opening)
	if err != nil {
		return nil, err // and not a Stream that holds nil
	}
	return stream, nil
}

func (s *Site) await(ctx context.Context, peer string) error {
	<-s.opened
	if s.tunnel == nil {
		return tunnel.ErrClosed
	}
	return s.tunnel.Await(ctx, peer)
}

// peerCodecs returns the names of the codecs in a peer's hello. It is never nil: a peer without a hello has none.
func (s *Site) peerCodecs(peer string) []string {
	names := []string{}
	select {
	case <-s.opened:
	default: // a connection that was taken over comes before the tunnel
		return names
	}
	if s.tunnel == nil {
		return names
	}
	for _, p := range s.tunnel.Stats() {
		if p.Peer == peer {
			if p.Codecs != nil {
				return p.Codecs // not a copy: each connection keeps it
			}
		}
	}
	return names
}

// Close releases everything at once: open connections are reset, the rules are removed.
func (s *Site) Close() error { return s.release(false) }

// release is Close, but can leave the interceptor, which the end of Serve has stopped already, as it is.
func (s *Site) release(leave bool) error {
	if s.proxy != nil {
		s.proxy.Close()
	}
	var errs []error
	if s.tunnel != nil {
		errs = append(errs, s.tunnel.Close())
	}
	if s.residuals != nil {
		errs = append(errs, s.residuals.Close())
	}
	for _, f := range s.forwards {
		errs = append(errs, f.Close())
	}
	if s.upgrades != nil {
		errs = append(errs, s.upgrades.Close())
	}
	if s.redirect != nil && s.giver != nil {
		errs = append(errs, s.redirect.(upgradable).Leave())
	} else if s.redirect != nil && !leave {
		errs = append(errs, s.redirect.Close())
	}
	for _, l := range []net.Listener{s.carriers, s.admin} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.warden != nil {
		errs = append(errs, s.warden.Close())
	}
	if s.probed != nil { // after the rules, which must not stay while a process that is stopped is waited for
		errs = append(errs, s.probed.Close())
	}
	for i, err := range errs {
		if errors.Is(err, net.ErrClosed) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
