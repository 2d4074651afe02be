package site

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// listenCarriers listens for carriers. Where the configuration leaves the carrier out and datagrams have no listener, t
// becomes one of TLS alone.
func (s *Site) listenCarriers(t *config.Tunnel) (net.Listener, error) {
	l, err := listenCarriers(t.Carrier, t.Listen)
	if err == nil || s.started.Tunnel.Carrier != "" || t.Carrier != tunnel.CarrierAuto {
		return l, err
	}
	alone, failed := listenCarriers(tunnel.CarrierTLS, t.Listen)
	if failed != nil {
		return nil, failed
	}
	s.log.Warn("carriers use TLS alone, since datagrams have no listener: free the port of UDP (ss -lnup) and start again, or set tunnel.carrier to tls", "listen", t.Listen, "err", err)
	t.Carrier = tunnel.CarrierTLS
	return alone, nil
}

func listenCarriers(carrier, address string) (net.Listener, error) {
	l, err := tunnel.Listen(carrier, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("tunnel: listen %s: the port is in use: stop the program that holds it (ss -lntup), or set tunnel.listen to another", address)
	}
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w: correct tunnel.listen in the configuration", err)
	}
	return l, nil
}

// tunnelAddrs returns the tunnel addresses of peers as far as the configuration tells them without a name server. The
// rules spare the others by the mark of the sockets that dial them.
func tunnelAddrs(c *config.Config) []netip.AddrPort {
	var all []netip.AddrPort
	for _, p := range c.Peers {
		if a, err := netip.ParseAddrPort(p.Dial); err == nil {
			all = append(all, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
		}
	}
	return all
}

func (s *Site) tunnelConfig(c *config.Config) tunnel.Config {
	dialer := &net.Dialer{Control: s.control(c)}
	dialer.SetMultipathTCP(false)
	t := c.Tunnel
	a := &admission{places: s.places, log: s.log}
	return tunnel.Config{
		Name: c.Site, Identity: tunnel.Identity{Cert: t.Cert, Key: t.Key, CA: t.CA, CRL: t.CRL}, Peers: tunnelPeers(c),
		Accept: func(peer string, opening []byte, in *tunnel.Incoming) {
			a.admit(peer, opening, in, func(ended func()) {
				s.proxy.Accept(peer, opening, in, func() proxy.Stream { return in.Accept() }, ended)
			})
		},
		Resume: t.Resume, Carrier: t.Carrier, Carriers: t.Carriers, Codecs: understood(c), Memory: t.Memory, Streams: maxStreams(s.limits.places, len(c.Peers)), HalfOpen: s.limits.halfOpen, Congestion: t.Congestion, Pad: int(t.Pad),
		Insecure: t.Insecure, Options: s.options(), Dial: dialer.DialContext, Events: s.counts.events(), Logger: s.log,
	}
}

func tunnelPeers(c *config.Config) []tunnel.Peer {
	var peers []tunnel.Peer
	for _, p := range c.Peers {
		peers = append(peers, tunnel.Peer{Name: p.Name, Dial: p.Dial, ID: p.ID})
	}
	return peers
}

// own returns the addresses of this process's listeners.
func (s *Site) own() []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range []net.Listener{s.admin, s.carriers} {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			all = append(all, netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port()))
		}
	}
	for _, f := range s.forwards {
		all = append(all, f.Addr())
	}
	if s.redirect != nil {
		all = append(all, s.redirect.Addrs()...)
	}
	return all
}
