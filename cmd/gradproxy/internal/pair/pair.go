// Package pair runs two proxies in one process, with a real tunnel between them over loopback and nothing to configure:
// as a demonstration, a benchmark or a test of the whole path needs them.
package pair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	parsers "github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// Config describes the link between the two proxies and their policies. The zero Config is two proxies side by side
// that code without loss the traffic that they understand.
type Config struct {
	// Between is given the address of the far proxy's tunnel listener and returns the one that the near proxy dials:
	// a relay with an emulated link, for example. nil: the same.
	Between   func(target netip.AddrPort) (netip.AddrPort, error)
	Rules     []policy.Rule
	Jobs      []proxy.Job
	Carrier   string            // as tunnel.Config.Carrier; "": TLS
	Pad       int               // as tunnel.Config.Pad; 0: none
	Verbatim  bool              // no parsers: every byte travels as it is
	Protocols []parser.Protocol // that the proxies understand; nil: all
	Log       *slog.Logger      // nil: silent
	Shadow    []string          // as proxy.Settings.Shadow, with a core of its own; none: nothing is tried

	// Near and Far tell which collectives the apps at the two sites call; nil: nobody sees them.
	Near, Far parser.Calls
}

// A Pair is two running proxies: one at each of two sites, near and far.
type Pair struct {
	Near, Far *Site
	ctx       context.Context
	cancel    context.CancelFunc
	dir       string
	running   sync.WaitGroup
}

// A Site is one proxy of a Pair.
type Site struct {
	*proxy.Proxy
	Tunnel *tunnel.Endpoint
}

const domain = "pair"

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Start makes certificates, starts both proxies, and returns once a session joins them or ctx ends.
func Start(ctx context.Context, cfg Config) (_ *Pair, err error) {
	p := &Pair{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "gradproxy-pair-"); err != nil {
		return nil, err
	}
	if _, err = pki.Write(pki.Options{Dir: p.dir, Domain: domain, Sites: []string{"near", "far"}}); err != nil {
		return nil, err
	}
	ln, err := tunnel.Listen(cfg.Carrier, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	target := ln.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort() // a TCPAddr or a UDPAddr
	if cfg.Between != nil {
		if target, err = cfg.Between(target); err != nil {
			ln.Close()
			return nil, err
		}
	}
	up := make(chan struct{}, 1)
	if p.Far, err = p.site(cfg, cfg.Far, "far", "near", "", nil); err != nil {
		ln.Close()
		return nil, err
	}
	p.running.Go(func() { p.Far.Tunnel.Serve(ln) })
	if p.Near, err = p.site(cfg, cfg.Near, "near", "far", target.String(), up); err != nil {
		return nil, err
	}
	select {
	case <-up:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("pair: the proxies did not find each other: %w", ctx.Err())
	}
}

// site starts one proxy, whose only peer is the other, beside an app with these calls. up is told of the session.
func (p *Pair) site(cfg Config, calls parser.Calls, name, peer, dial string, up chan struct{}) (*Site, error) {
	s := &Site{}
	rules, err := policy.New(cfg.Rules, all.New)
	if err != nil {
		return nil, err
	}
	settings := proxy.Settings{Policy: rules, Shadow: cfg.Shadow, Jobs: cfg.Jobs, Peers: []proxy.Peer{{Name: peer, Networks: loopback}}}
	for _, n := range loopback {
		settings.Peers[0].MayDial = append(settings.Peers[0].MayDial, proxy.DialRule{Network: n, First: 1, Last: 65535})
	}
	pc := proxy.Config{Codecs: all.New, Settings: settings, Log: cfg.Log, Open: s.open, PeerCodecs: s.peerCodecs, ShadowShare: 64} // windows do not end early on a busy machine
	if cfg.Shadow != nil {
		pc.Metrics = proxy.NewMetrics(prometheus.NewRegistry())
	}
	if calls != nil {
		pc.Calls = func(syscall.Conn, netip.AddrPort) parser.Calls { return calls }
	}
	switch {
	case cfg.Protocols != nil:
		pc.Protocols = cfg.Protocols
	case !cfg.Verbatim:
		pc.Protocols = parsers.Protocols()
	}
	if s.Proxy, err = proxy.New(pc); err != nil {
		return nil, err
	}
	tc := tunnel.Config{
		Name:     name,
		Carrier:  cfg.Carrier,
		Pad:      cfg.Pad,
		Identity: tunnel.Identity{Cert: p.file(name + ".pem"), Key: p.file(name + ".key"), CA: p.file("ca.pem")},
		Peers:    []tunnel.Peer{{Name: peer, Dial: dial, ID: pki.ID(domain, peer)}},
		Codecs:   append(all.Names(), proxy.SharedValues, proxy.SharedParts, proxy.Models, proxy.ShortValues, proxy.Short, proxy.Checksums, proxy.Masks),
		Logger:   cfg.Log,
		Accept: func(peer string, opening []byte, in *tunnel.Incoming) {
			s.Proxy.Accept(peer, opening, in, func() proxy.Stream { return in.Accept() }, func() {})
		},
	}
	if up != nil {
		tc.Events.SessionUp = func(string) {
			select {
			case up <- struct{}{}:
			default:
			}
		}
	}
	s.Tunnel, err = tunnel.New(tc)
	return s, err
}

func (p *Pair) file(name string) string { return filepath.Join(p.dir, name) }

func (s *Site) open(ctx context.Context, peer string, opening []byte) (proxy.Stream, error) {
	stream, err := s.Tunnel.Open(ctx, peer, opening)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

func (s *Site) peerCodecs(peer string) []string {
	for _, p := range s.Tunnel.Stats() {
		if p.Peer == peer {
			return p.Codecs
		}
	}
	return nil
}

// Forward returns an address beside the near proxy that leads to target beside the far one.
func (p *Pair) Forward(target netip.AddrPort) (netip.AddrPort, error) {
	return p.forward(p.Near, target)
}

// Backward returns an address beside the far proxy that leads to target beside the near one.
func (p *Pair) Backward(target netip.AddrPort) (netip.AddrPort, error) {
	return p.forward(p.Far, target)
}

// forward returns an address beside from that leads to target beside the other.
func (p *Pair) forward(from *Site, target netip.AddrPort) (netip.AddrPort, error) {
	f, err := intercept.NewForward(netip.MustParseAddrPort("127.0.0.1:0"), target, intercept.Places{}, nil)
	if err != nil {
		return netip.AddrPort{}, err
	}
	p.running.Go(func() {
		f.Serve(p.ctx, func(c *net.TCPConn, server netip.AddrPort, ended func()) { from.Serve(p.ctx, c, server, ended) })
	})
	return f.Addr(), nil
}

// Close ends both proxies, resets all connections and removes the certificates.
func (p *Pair) Close() error {
	p.cancel()
	var errs []error
	for _, s := range []*Site{p.Near, p.Far} {
		if s != nil && s.Proxy != nil {
			s.Proxy.Close()
		}
		if s != nil && s.Tunnel != nil {
			errs = append(errs, s.Tunnel.Close())
		}
	}
	p.running.Wait()
	if p.dir != "" {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}
