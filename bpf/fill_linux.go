package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// fill brings the maps up to date with the configuration, the routes and the host's addresses.
func (h *Hooks) fill() error {
	locals, err := h.localAddresses()
	if err != nil {
		return err
	}
	if err := h.maps.locals.set(locals); err != nil { // first: exceptions before the networks that are redirected
		return fmt.Errorf("map of local addresses: %w", err)
	}
	tunnels := map[bpfEnd]uint32{}
	for _, t := range h.config.Tunnels {
		tunnels[endOf(t)] = 0
	}
	if err := h.maps.tunnels.set(tunnels); err != nil {
		return fmt.Errorf("map of tunnels: %w", err)
	}
	networks := map[bpfPrefix]bpfAddr{}
	for _, n := range h.config.Networks {
		networks[prefixOf(n.Masked())] = h.source(n.Masked())
	}
	if err := h.maps.networks.set(networks); err != nil {
		return fmt.Errorf("map of networks: %w", err)
	}
	return nil
}

func (h *Hooks) localAddresses() (map[bpfAddr]uint32, error) {
	addrs, err := h.routes.AddrList(nil, netlink.FAMILY_ALL)
	for try := 0; errors.Is(err, netlink.ErrDumpInterrupted) && try < 10; try++ { // they change at this moment
		addrs, err = h.routes.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("this host's addresses: %w", err)
	}
	all := map[bpfAddr]uint32{}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			all[addrOf(ip)] = 0
		}
	}
	return all, nil
}

// source returns the address of this host towards a network, zero where there is no route.
func (h *Hooks) source(n netip.Prefix) bpfAddr {
	to := n.Addr()
	if !n.IsSingleIP() {
		to = to.Next()
	}
	routes, err := h.routes.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return bpfAddr{}
	}
	ip, ok := netip.AddrFromSlice(routes[0].Src)
	if !ok || ip.Unmap().Is4() != to.Is4() || ip.IsLoopback() {
		return bpfAddr{}
	}
	return addrOf(ip)
}
