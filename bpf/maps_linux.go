package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maps are the contents of the kernel's maps, so that a change touches only entries that differ.
type maps struct {
	networks table[bpfPrefix, bpfAddr]
	locals   table[bpfAddr, uint32]
	tunnels  table[bpfEnd, uint32]
}

func newMaps(o *bpfObjects) maps {
	return maps{
		table[bpfPrefix, bpfAddr]{o.Networks, map[bpfPrefix]bpfAddr{}},
		table[bpfAddr, uint32]{o.Locals, map[bpfAddr]uint32{}},
		table[bpfEnd, uint32]{o.Tunnels, map[bpfEnd]uint32{}},
	}
}

// A table is a map of the kernel's with its content.
type table[K, V comparable] struct {
	kernel *ebpf.Map
	holds  map[K]V
}

// set makes the kernel's map hold exactly want. New entries come before old ones go: an address that both hold is
// never missing.
func (t *table[K, V]) set(want map[K]V) error {
	for k, v := range want {
		if old, ok := t.holds[k]; ok && old == v {
			continue
		}
		if err := t.kernel.Put(k, v); err != nil {
			return err
		}
		t.holds[k] = v
	}
	for k := range t.holds {
		if _, ok := want[k]; ok {
			continue
		}
		if err := t.kernel.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(t.holds, k)
	}
	return nil
}

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

// Update puts other networks and tunnels in force, without touching open connections. A family that had no listener at
// first needs a new Attach.
func (h *Hooks) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed() {
		return errClosed
	}
	if err := h.served(networks); err != nil {
		return err
	}
	old := h.config
	h.config.Networks, h.config.Tunnels = networks, tunnels
	err := h.fill()
	if err != nil {
		h.config = old
		return fmt.Errorf("bpf: %w", errors.Join(err, h.fill()))
	}
	return nil
}

// served tells whether there is a listener for each of the networks.
func (h *Hooks) served(networks []netip.Prefix) error {
	for _, n := range networks {
		if n.Addr().Is4() && h.config.Listen4 == 0 || n.Addr().Is6() && h.config.Listen6 == 0 {
			return errors.New("bpf: the first network of an address family cannot be added while running: restart gradproxy")
		}
	}
	return nil
}

// Refresh says that the proxy is alive, and looks whether routes or this host's addresses have changed. It
// tries both: an error with which the programs keep their force says that something was not brought up to date.
func (h *Hooks) Refresh() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil
	}
	var now unix.Timespec // of the clock of bpf_ktime_get_ns
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("bpf: %s: clock: %w", h.config.forceless(), err)
	}
	if err := h.objects.Beat.Put(uint32(0), uint64(now.Nano())); err != nil {
		return fmt.Errorf("bpf: %s: beat: %w", h.config.forceless(), err)
	}
	if err := h.fill(); err != nil {
		return fmt.Errorf("bpf: addresses and routes not brought up to date, those of before stay in force: %w", err)
	}
	return nil
}

// forceless says how new connections fare once the programs lose their force.
func (c *Config) forceless() string {
	if c.Refuse {
		return "new connections are soon refused"
	}
	return "new connections soon bypass the proxy"
}

func addrOf(ip netip.Addr) (a bpfAddr) {
	b := ip.As16()
	for i := range a.Word {
		a.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return a
}

func endOf(p netip.AddrPort) bpfEnd {
	return bpfEnd{Ip: addrOf(p.Addr()), Port: networkOrder(p.Port())}
}

func prefixOf(n netip.Prefix) bpfPrefix {
	p := bpfPrefix{Bits: uint32(32 + n.Bits()), Ip: addrOf(n.Addr())}
	if n.Addr().Is4() {
		p.Bits, p.V4 = p.Bits+96, 1
	}
	return p
}

// networkOrder turns a port into the number that has its bytes in network order, and back.
func networkOrder(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

func (a bpfAddr) ip() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

func (e bpfEnd) addrPort() netip.AddrPort {
	if e == (bpfEnd{}) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(e.Ip.ip(), networkOrder(e.Port))
}
