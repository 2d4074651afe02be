package intercept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
)

// A Hooked takes over the connections that hooks redirect to it.
type Hooked struct {
	config    HookedConfig
	log       *slog.Logger
	listeners []*net.TCPListener
	hooks     Hooks
}

// NewHooked opens the listeners and puts hooks in force.
func NewHooked(c HookedConfig) (*Hooked, error) {
	h := &Hooked{config: c, log: orDiscard(c.Log)}
	if err := h.open(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Hooked) open() error {
	ports, err := h.listen()
	if err != nil {
		return err
	}
	hooks, err := h.config.Attach(ports[0], ports[1])
	if err != nil {
		return err
	}
	h.hooks = hooks
	if err := h.mark(); err != nil {
		return err
	}
	return hooks.Refresh()
}

// mark marks the listeners as a proxy's. A dead proxy's programs hand connections to marked ones, and only the new
// programs note their servers: so the listeners have no mark before the new programs are there.
func (h *Hooked) mark() error {
	for _, l := range h.listeners {
		c, err := l.SyscallConn()
		if err == nil {
			err = Control("", "", c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listen opens the listeners, where connections wait for them if some do.
func (h *Hooked) listen() (ports [2]uint16, err error) {
	if h.config.Awaited != nil {
		if ports[0], ports[1], err = h.config.Awaited(); err != nil {
			return ports, err
		}
	}
	families := RedirectConfig{Networks: h.config.Networks}
	return families.listen(&h.listeners, [2]netip.AddrPort{
		netip.AddrPortFrom(loopback4, ports[0]), netip.AddrPortFrom(netip.IPv6Loopback(), ports[1]),
	}, nil)
}

// Addrs returns the listeners' addresses, which no peer may make the proxy dial.
func (h *Hooked) Addrs() []netip.AddrPort { return addrsOf(h.listeners) }

// Serve accepts redirected connections and keeps the hooks in force until ctx ends; then it ends their force, closes
// the listeners and returns nil.
func (h *Hooked) Serve(ctx context.Context, handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go keepAlive(ctx, h.hooks.Refresh, h.config.Failed, h.log)
	err := serveRedirected(ctx, h.listeners, h.config.Places, h.log, originalDst, handle)
	return errors.Join(err, h.hooks.Stop())
}

// Update is that of the hooks.
func (h *Hooked) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	return h.hooks.Update(networks, tunnels)
}

// Close removes the hooks and closes the listeners.
func (h *Hooked) Close() error {
	var err error
	if h.hooks != nil {
		err = h.hooks.Close()
	}
	for _, l := range h.listeners {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
