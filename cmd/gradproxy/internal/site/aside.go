package site

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// lookAsideEvery is how often connections are looked for that go to a peer's host and past the proxies.
const lookAsideEvery = 20 * time.Second

// An aside looks for connections to the hosts at the other ends of carriers by addresses in no peer's networks: a job
// that knows such a host by another address, such as a public one, goes past the proxies, in the clear and without an
// error. Each address is reported once.
type aside struct {
	reported map[netip.Addr]bool
}

// watchAside looks now and then until ctx ends. Connections of other hosts that this one forwards are not seen, nor are
// hosts of a peer without carriers.
func (s *Site) watchAside(ctx context.Context) {
	a := aside{reported: map[netip.Addr]bool{}}
	t := time.NewTicker(lookAsideEvery)
	defer t.Stop()
	for {
		if err := s.lookAside(&a); err != nil {
			s.log.Info("nobody looks for connections that go past the proxies to a peer's host, since this kernel does not list its sockets", "err", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// lookAside reports the connections that go past the proxies.
func (s *Site) lookAside(a *aside) error {
	c, carriers := s.config.Load(), map[netip.AddrPort]string{}
	for _, p := range s.tunnel.Stats() {
		for _, l := range p.Links {
			if at, err := netip.ParseAddrPort(l.Remote); err == nil {
				carriers[netip.AddrPortFrom(at.Addr().Unmap(), at.Port())] = p.Peer
			}
		}
	}
	hosts := hostsOf(carriers)
	sockets, err := app.HostSockets(slices.Collect(maps.Keys(hosts)))
	if err != nil {
		return err
	}
	for at, peer := range a.find(c, carriers, hosts, s.receivers.each(), sockets) {
		s.log.Warn("a connection goes past the proxies, in the clear: it is one to a peer's host by an address that lies in none of that peer's networks; if it is the job's, add the address to the peer's networks, or have the job use the other one",
			"peer", peer, "server", at)
	}
	return nil
}

// hostsOf returns the hosts at the other ends of carriers, with their peers.
func hostsOf(carriers map[netip.AddrPort]string) map[netip.Addr]string {
	hosts := map[netip.Addr]string{}
	for at, peer := range carriers {
		if !at.Addr().IsLoopback() {
			hosts[at.Addr()] = peer
		}
	}
	return hosts
}

// find returns one connection to each address that was not reported before, by its server, with the peer. carriers are
// the other ends of carriers, and receivers those of the connections by which the proxy itself sends metrics. sockets
// are the ones of this network namespace that listen, or are connected to the hosts.
func (a *aside) find(c *config.Config, carriers map[netip.AddrPort]string, hosts map[netip.Addr]string, receivers []netip.AddrPort, sockets []app.HostSocket) map[netip.AddrPort]string {
	spared := map[netip.AddrPort]bool{}
	for _, at := range slices.Concat(tunnelAddrs(c), receivers) {
		spared[at] = true
	}
	for _, f := range c.Forward {
		spared[f.Target] = true // which has its own way, or is the user's wish
	}
	listening := map[uint16]bool{}
	for _, x := range sockets {
		listening[x.Local.Port()] = listening[x.Local.Port()] || x.Listens
	}
	found := map[netip.AddrPort]string{}
	for _, x := range sockets {
		to := x.Remote.Addr()
		peer, is := hosts[to]
		switch _, carrier := carriers[x.Remote]; {
		case !is || x.Listens || carrier || spared[x.Remote] || a.reported[to]:
		case listening[x.Local.Port()]: // the other end has connected
		case !taken(c.Intercept.Ports, x.Remote.Port()) || within(c.Networks(), to):
		default:
			a.reported[to] = true
			found[x.Remote] = peer
		}
	}
	return found
}

// taken reports whether connections to a port are intercepted.
func taken(p intercept.Ports, port uint16) bool { return p.First <= port && port <= p.Last }

// within reports whether an address lies in one of the networks.
func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}
