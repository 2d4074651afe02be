package bpf

import (
	"errors"
	"fmt"
	"net/netip"
)

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
	now, err := monotonic()
	if err != nil {
		return fmt.Errorf("bpf: %s: %w", h.config.forceless(), err)
	}
	if err := h.objects.Beat.Put(uint32(0), uint64(now)); err != nil {
		return fmt.Errorf("bpf: %s: beat: %w", h.config.forceless(), err)
	}
	if err := h.fill(); err != nil {
		return fmt.Errorf("bpf: addresses and routes not brought up to date, the former ones stay in force: %w", err)
	}
	return nil
}

// forceless says how new connections fare once the programs lose their force.
func (c *Config) forceless() string {
	if c.Hold > 0 {
		return "new connections soon wait for the next start"
	}
	if c.Refuse {
		return "new connections are soon refused"
	}
	return "new connections soon bypass the proxy"
}
