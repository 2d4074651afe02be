package intercept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Redirect takes over connections to the peers' networks by rules of nf_tables, in the network namespace in which it
// was made. Making it takes CAP_NET_ADMIN there; afterwards its Enforcer alone needs that.
type Redirect struct {
	config    RedirectConfig // as at first: Update changes the plan
	log       *slog.Logger
	claims    []io.Closer // of the table and, in a transparent proxy, of the mark
	listeners []*net.TCPListener

	mu      sync.Mutex // guards the fields below
	rules   Enforcer   // nil: not in force yet
	plan    Plan       // of rules
	stopped bool       // Stop was called: the rules are not refreshed any more
	paused  bool       // nor are they between Pause and GoOn
}

// NewRedirect opens the listeners and puts the rules in force. A table that a dead proxy of the same site left is
// replaced; a living one is an error.
func NewRedirect(c RedirectConfig) (*Redirect, error) {
	r := &Redirect{config: c, log: orDiscard(c.Log)}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.closeAll())
	}
	return r, nil
}

func (r *Redirect) open() (err error) {
	if err = r.claim(TableName(r.config.Site), "table inet "+TableName(r.config.Site)); err != nil {
		return err
	}
	if r.config.Transparent {
		mark := fmt.Sprintf("%#x", markOf(r.config.Site))
		if err = r.claim("mark_"+mark, "mark "+mark+", a hash of the site's name,"); err != nil {
			return err
		}
	}
	ports, err := r.listen()
	if err != nil {
		return err
	}
	r.plan = r.config.Plan(ports[0], ports[1])
	enforce := r.config.Enforce
	if enforce == nil {
		enforce = func(p Plan) (Enforcer, error) { return OpenRules(p, r.log) }
	}
	rules, err := enforce(r.plan)
	if err == nil { // and not an Enforcer that holds nil
		r.rules = rules
	}
	return err
}

// listen opens the listeners and returns their ports.
func (r *Redirect) listen() (ports [2]uint16, err error) {
	addrs := [2]netip.Addr{loopback4, netip.IPv6Loopback()}
	if r.config.Gateway { // the kernel redirects others' connections to the address of the interface that they come in by
		addrs = [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	return r.config.listen(&r.listeners, [2]netip.AddrPort{netip.AddrPortFrom(addrs[0], 0), netip.AddrPortFrom(addrs[1], 0)}, r.socket())
}

// TryRedirect returns the error with which NewRedirect would fail here for want of rights, of nf_tables or of the
// listeners' options. It changes nothing, and a proxy of the same site may run.
func TryRedirect(c RedirectConfig) error {
	r := &Redirect{config: c, log: orDiscard(c.Log)}
	name := "next_" + TableName(c.Site)
	err := r.claim(name, "table inet claim_"+name)
	if err == nil {
		_, err = r.listen()
	}
	return errors.Join(err, r.closeAll())
}

// listen opens a listener, on the address of its family and its port unless that is in use, for each family of the
// networks and returns their ports, 0 where there is none. They are appended to all, also the ones before an error.
func (c *RedirectConfig) listen(all *[]*net.TCPListener, addrs [2]netip.AddrPort, set control) (ports [2]uint16, err error) {
	for i, network := range [...]string{"tcp4", "tcp6"} {
		if !c.has([...]func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6}[i]) {
			continue
		}
		l, err := listen(network, addrs[i], set)
		if err != nil && addrs[i].Port() != 0 { // somebody else has the port at which connections wait: they are refused
			l, err = listen(network, netip.AddrPortFrom(addrs[i].Addr(), 0), set)
		}
		if err != nil {
			return ports, err
		}
		*all = append(*all, l)
		ports[i] = addrPort(l.Addr()).Port()
	}
	return ports, nil
}

// socket returns a function that sets the listeners' options; nil: none are set.
func (r *Redirect) socket() control {
	if r.config.Transparent {
		return TransparentControl
	}
	return smallSegments
}

// smallSegments has the kernel take segments as they are on a WAN. The app's own segments are no larger, since it takes
// the way to the peer's network, but of a listener that offers 64 KiB, as loopback's do, the kernel makes the app's
// send buffer several megabytes large: bytes that an app has sent should not wait there for a slow link.
func smallSegments(_, _ string, c syscall.RawConn) error {
	const segment = 1460 // bytes: an Ethernet frame's, less the headers of IPv4 and TCP
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment) }); e != nil {
		return e
	}
	return err
}

// claim claims a thing that the error names, for as long as r is open. Its name does not begin as the ones of rules'
// tables do.
func (r *Redirect) claim(name, thing string) error {
	c, err := claim("claim_"+name, thing)
	if err == nil {
		r.keep(c, thing)
	}
	return err
}

// keep keeps a claim until r is closed. One that any user can make is told.
func (r *Redirect) keep(c io.Closer, thing string) {
	r.claims = append(r.claims, c)
	if socket, ok := c.(net.Listener); ok {
		r.log.Warn("this kernel has no tables that belong to a process (Linux 5.12): an abstract socket claims this proxy's rules, and any local user of this network namespace could take its name first and keep the proxy from starting",
			"thing", thing, "socket", socket.Addr())
	}
}

// Addrs returns the listeners' addresses, which no peer may make the proxy dial.
func (r *Redirect) Addrs() []netip.AddrPort { return addrsOf(r.listeners) }

// Serve accepts redirected connections and keeps the rules in force until ctx ends; then it ends their force, closes
// the listeners and returns nil. The mappings of connections that are open stay until Close.
func (r *Redirect) Serve(ctx context.Context, handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go keepAlive(ctx, r.refresh, r.config.Failed, r.log)
	err := serveRedirected(ctx, r.listeners, r.config.Places, r.log, r.target, handle)
	return errors.Join(err, r.Stop())
}

// target returns the address that the client of an intercepted connection dialled.
func (r *Redirect) target(c *net.TCPConn) (netip.AddrPort, error) {
	if !r.config.Transparent {
		return originalDst(c)
	}
	local := addrPort(c.LocalAddr())
	if slices.Contains(r.Addrs(), local) {
		return netip.AddrPort{}, fmt.Errorf("%w (%s)", errNotRedirected, local)
	}
	return local, nil
}

// refresh keeps the rules in force.
func (r *Redirect) refresh() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.paused {
		return nil
	}
	if err := r.rules.Refresh(); err != nil {
		return fmt.Errorf("%s: %w", r.config.forceless(), err)
	}
	return nil
}

// forceless says how new connections fare once rules that are not refreshed lose their force.
func (c *RedirectConfig) forceless() string {
	if c.Hold > 0 {
		return fmt.Sprintf("new connections soon wait, and are refused after %v", c.Hold)
	}
	if c.Refuse {
		return "new connections are soon refused"
	}
	return "new connections soon bypass the proxy"
}

// Update changes the networks and the tunnels' addresses without touching open connections. A family that had no
// network at first needs a restart.
func (r *Redirect) Update(networks []netip.Prefix, tunnels []netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.config
	c.Networks, c.Tunnels = networks, tunnels
	p := c.Plan(r.plan.Listen4, r.plan.Listen6)
	if c.has(netip.Addr.Is4) && p.Listen4 == 0 || c.has(netip.Addr.Is6) && p.Listen6 == 0 {
		return errors.New("intercept: the first network of an address family cannot be added while running: restart gradproxy")
	}
	if err := r.rules.Update(p.Networks, p.Tunnels); err != nil {
		return err
	}
	r.plan = p
	return nil
}

// Stop ends the force of the rules: new connections go directly, or are refused, as configured for a dead proxy.
// Connections that are open keep their mappings.
func (r *Redirect) Stop() error { return r.expire(&r.stopped) }

// expire ends the force of the rules, for a reason that keeps them from being refreshed.
func (r *Redirect) expire(reason *bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*reason = true
	return r.rules.Expire()
}

// Pause has new connections wait, where the rules hold them for a dead proxy; elsewhere it does nothing. GoOn ends it.
func (r *Redirect) Pause() error {
	if r.config.Hold == 0 {
		return nil
	}
	return r.expire(&r.paused)
}

// GoOn has new connections taken again after Pause, unless Stop has been called. After an error the next refresh tries
// again.
func (r *Redirect) GoOn() error {
	r.mu.Lock()
	r.paused = false
	r.mu.Unlock()
	return r.refresh()
}

// Leave closes the listeners and leaves the rules as they are, to be replaced by the process that takes this one's
// place: connections that are open stay redirected.
func (r *Redirect) Leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return r.closeAll()
}

// Close removes the rules and closes the listeners. Redirected connections that are still open do not survive it.
func (r *Redirect) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return errors.Join(r.rules.Remove(), r.closeAll())
}

func (r *Redirect) closeAll() error {
	var err error
	for _, l := range r.listeners {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	if r.rules != nil {
		err = errors.Join(err, r.rules.Close())
	}
	for _, l := range r.claims { // last: the next process that claims the table finds it gone
		err = errors.Join(err, l.Close())
	}
	return err
}

// Control marks a socket as the proxy's own, so that rules never redirect it to the proxy: it is a net.Dialer's
// Control. Without CAP_NET_ADMIN it does nothing, since then there are no rules of ours either.
func Control(_, _ string, c syscall.RawConn) error {
	err := optionsBy(c, MarkSocket)
	if errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

// TransparentControl is Control for sockets that have other hosts' addresses: listeners behind TPROXY, and connections
// that keep their client's address and port, which a connection before may have had a moment ago.
func TransparentControl(_, _ string, c syscall.RawConn) error { return optionsBy(c, ClientSocket) }

// optionsBy sets options of a socket by a function.
func optionsBy(c syscall.RawConn, set func(fd int) error) (failed error) {
	err := c.Control(func(fd uintptr) { failed = set(int(fd)) })
	return errors.Join(err, failed)
}

// MarkSocket does the work of Control for the socket of a descriptor.
func MarkSocket(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, Mark) }

// ClientSocket does the work of TransparentControl for the socket of a descriptor.
func ClientSocket(fd int) error {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("intercept: SO_DOMAIN: %w", err)
	}
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if family == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	err = errors.Join(unix.SetsockoptInt(fd, level, option, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("intercept: tproxy gives sockets other hosts' addresses, for which the process lacks CAP_NET_ADMIN: run it as root, give it that capability, or use redirect: %w", err)
	}
	return errors.Join(err, MarkSocket(fd))
}
