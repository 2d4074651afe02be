package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// Run carries connections until ctx ends or a part fails. With upgrade.socket it then goes on for half of the drain's
// time, unless another process takes over sooner. Then it drains: the rules lose their force, peers are informed, no
// new connection is taken, and open connections may end by themselves for as long as the configuration says. The
// connections that are left then, or when cut ends, are reset. Run returns nil after an orderly end, even if
// connections were reset. Everything is released when it returns, with one exception: after a part has failed, the
// rules or programs that refuse connections on the death of the proxy (on_death: hold, refuse) stay, until Close, or
// beyond the end of the process until the next start.
func (s *Site) Run(ctx, cut context.Context) error {
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, 8+len(s.forwards))
	visible, hide := context.WithCancel(context.WithoutCancel(ctx)) // the admin pages outlive the drain
	defer hide()
	s.start(ctx, cut, parts, visible, func(serve func() error) {
		running.Go(func() {
			if err := serve(); err != nil {
				select {
				case failed <- err:
				default: // others have failed before
				}
			}
		})
	})
	limit, err := s.awaitEnd(ctx, cut, failed)
	s.draining.Store(true)
	if s.upgrades != nil {
		err = errors.Join(err, s.upgrades.Close())
	}
	stop()
	if s.giver == nil { // else the other process has the connections and residuals, and waits for this one's end
		s.drain(cut, limit)
		if s.residuals != nil {
			s.residuals.save() // no connection changes residuals any more
		}
		s.saveRecords()
	}
	err = errors.Join(err, s.tunnel.Close())
	hide()
	running.Wait()
	err = errors.Join(err, s.release(err != nil && s.started.Intercept.Refuse))
	if s.giver != nil {
		err = errors.Join(err, s.giver.Close())
	}
	s.log.Info("ended")
	return err
}

// start starts the parts of the site, each by part: carriers, until the tunnel is closed; admin pages and observations,
// until visible ends; and the rest until parts ends. Connections that they take outlive ctx. cut ends a hand-over.
func (s *Site) start(ctx, cut, parts, visible context.Context, part func(serve func() error)) {
	if s.admin != nil {
		part(func() error { return admin.Serve(visible, s.admin, s.pages()) })
	}
	if s.carriers != nil {
		part(func() error { return s.tunnel.Serve(s.carriers) })
	}
	opening := context.WithoutCancel(ctx) // streams that are open when ctx ends are drained
	handle := func(c *net.TCPConn, server netip.AddrPort, ended func()) { s.proxy.Serve(opening, c, server, ended) }
	a := &acceptor{site: s, ctx: parts, handle: handle, part: part}
	a.start(s.forwards)
	if s.upgrades != nil {
		part(func() error { return s.serveUpgrades(cut, a) })
	}
	if s.redirect != nil {
		part(func() error { return s.redirect.Serve(parts, handle) })
	}
	if s.residuals != nil {
		part(func() error { return s.residuals.run(parts) })
	}
	if o := s.started.OTLP; o != "" {
		part(func() error { s.export(visible, o); return nil })
	}
	part(func() error { return s.observed.run(visible) })
	for _, f := range s.saved {
		part(func() error { return f.run(parts) })
	}
	part(func() error { s.budgets.run(parts); return nil })
	s.noteFamilies(s.config.Load())
	if s.redirect != nil {
		part(func() error { s.watchAside(parts); return nil })
	}
	s.log.Info("running", "site", s.config.Load().Site, "version", s.version, "listening", s.addresses())
}

// awaitEnd waits until ctx ends or a part fails, and then for a hand-over that has begun. It returns how long
// connections may still take, and the error of the part; after a hand-over there is none.
func (s *Site) awaitEnd(ctx, cut context.Context, failed <-chan error) (limit time.Duration, err error) {
	limit = s.config.Load().Drain
	select {
	case <-ctx.Done():
		s.draining.Store(true)
		limit, err = s.awaitSuccessor(cut, limit, failed)
	case err = <-failed:
	}
	s.endHandOvers(cut)
	switch {
	case errors.Is(err, errHandedOver):
		err = nil
	case err != nil:
		s.log.Error("a part failed: this proxy ends; start it again", "new_connections", s.afterDeath(), "err", err)
	}
	return limit, err
}

// saveRecords brings the saved records up to date.
func (s *Site) saveRecords() {
	s.budgets.count()
	for _, f := range s.saved {
		f.save()
	}
}

// afterDeath tells the fate of connections that are made after the end of this proxy.
func (s *Site) afterDeath() string {
	if s.redirect == nil {
		return "are not taken"
	}
	return fate(&s.started.Intercept)
}

// fate tells what becomes of new connections without the proxy that takes them.
func fate(c *config.Intercept) string {
	switch {
	case c.Hold:
		return fmt.Sprintf("wait for its restart, and are refused after %v", intercept.HoldFor)
	case c.Refuse:
		return "are refused"
	}
	return "go directly to their servers, in the clear"
}

// drain waits for open connections, for limit, and resets the rest.
func (s *Site) drain(cut context.Context, limit time.Duration) {
	s.log.Info("draining: no connections are taken any more; a second signal ends it", "limit", limit)
	ctx, cancel := context.WithTimeout(cut, limit)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_ = s.tunnel.Drain(ctx) // open streams belong to connections, which the proxy counts
	}()
	if err := s.proxy.Drain(ctx); err != nil {
		s.log.Warn("draining is over", "err", err)
	}
	cancel()
	<-drained
}

func (s *Site) addresses() []string {
	var all []string
	for _, a := range s.own() {
		all = append(all, a.String())
	}
	for _, l := range []net.Listener{s.carriers, s.admin} { // the others have addresses of TCP
		if l == nil {
			continue
		}
		addrs := []net.Addr{l.Addr()}
		if both, ok := l.(interface{ Addrs() []net.Addr }); ok {
			addrs = both.Addrs()
		}
		for _, a := range addrs {
			if network := a.Network(); network == "udp" || network == "unix" {
				all = append(all, network+":"+a.String())
			}
		}
	}
	return all
}

func (s *Site) pages() admin.Config {
	return admin.Config{
		Site: s.config.Load().Site, Version: s.version, Tensors: s.proxy.Tensors, Checks: s.checks, Peers: s.excerpts, Shadow: s.shadow, Log: s.log,
		Metrics: promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}),
		Live:    s.observed.live, Tensor: s.observed.tensor, Halves: s.observed.halves, Lossy: lossy,
		History: func(step int) history.Table { return s.observed.history.Table(step, 0) },
		Summary: func(limit int) proxy.TensorSummary { return s.proxy.WithTrials(s.proxy.Summary("", limit)) },
	}
}

// excerptWait bounds how long a peer may take for its answer.
const excerptWait = 5 * time.Second

// excerpts asks all peers for their settings about this site.
func (s *Site) excerpts(ctx context.Context) []admin.Excerpt {
	ctx, cancel := context.WithTimeout(ctx, excerptWait)
	defer cancel()
	peers := s.config.Load().Peers
	all := make([]admin.Excerpt, len(peers))
	var asked sync.WaitGroup
	for i, p := range peers {
		asked.Go(func() {
			text, err := s.proxy.Excerpt(ctx, p.Name)
			all[i] = admin.Excerpt{Peer: p.Name, Text: string(text)}
			if err != nil {
				all[i].Error = err.Error()
			}
		})
	}
	asked.Wait()
	return all
}

var (
	errDraining   = errors.New("this proxy is ending")
	errNoSession  = errors.New("no tunnel has come up: see the log of the side that dials")
	errSuspended  = errors.New("the tunnel has lost all its connections and waits for new ones")
	errPeerLeaves = errors.New("the peer is ending")
)

// Alive returns once the parts of the proxy that all connections need have answered. It does not return while one of
// them is stuck.
func (s *Site) Alive() {
	_ = s.checks()
	_ = s.own()
}

// checks returns the conditions under which this site is ready.
func (s *Site) checks() []admin.Check {
	checks := []admin.Check{{Name: "drain"}}
	if s.draining.Load() {
		checks[0].Err = errDraining
	}
	if s.redirect != nil {
		c := admin.Check{Name: "intercept"}
		if err := s.bypassed.Load(); err != nil {
			c.Err = *err
		}
		checks = append(checks, c)
	}
	for _, p := range s.tunnel.Stats() {
		c := admin.Check{Name: "peer/" + p.Peer}
		switch {
		case !p.Session:
			c.Err = errNoSession
		case p.Carriers == 0:
			c.Err = errSuspended
		case p.Outage > 0:
			c.Err = fmt.Errorf("outage: nothing has come back from the peer for %v", p.Outage.Round(100*time.Millisecond))
		case p.Draining:
			c.Err = errPeerLeaves
		}
		checks = append(checks, c)
	}
	return checks
}
