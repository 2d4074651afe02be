package bpf

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// A site is a network namespace of a test's own.
type site struct {
	*netns.Namespace
	t *testing.T
}

func newSite(t *testing.T) *site { return &site{netns.New(t), t} }

func (s *site) listen(network, addr string) *net.TCPListener {
	s.t.Helper()
	return s.listenWith(network, addr, nil)
}

// markProxy marks a socket as the proxy's.
func markProxy(_, _ string, c syscall.RawConn) (err error) {
	e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
	return errors.Join(e, err)
}

func (s *site) listenWith(network, addr string, control func(network, address string, c syscall.RawConn) error) *net.TCPListener {
	s.t.Helper()
	var l net.Listener
	var err error
	s.Do(func() {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		c.Control = control
		l, err = c.Listen(context.Background(), network, addr)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// answer accepts on l and says word to each client, then echoes. seen, if given, looks at each connection first.
func (s *site) answer(l *net.TCPListener, word string, seen func(*net.TCPConn)) {
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if seen != nil {
					seen(c)
				}
				if _, err := io.WriteString(c, word); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
}

// A bed is a job's host and a far one, joined by a wire, with a proxy and a cgroup on the job's host.
//
//	job 10.1.0.1, 2001:db8:1::1 ── 10.1.0.2 far 10.2.0.1, 2001:db8:2::1: servers, which answer "D"
type bed struct {
	t        *testing.T
	job, far *site
	group    *cgroup.Group
	cgroup   string // the job's
	proxies  [2]*net.TCPListener
	seen     chan seen // connections that came to the proxy, which answers "P"
}

// seen is a connection as the proxy sees it.
type seen struct{ client, server netip.AddrPort }

const (
	server4 = "10.2.0.1:20001"
	server6 = "[2001:db8:2::1]:20001"
	mark    = 0x67707879
	timeout = time.Hour // unless a test makes the last beat older, the proxy lives
)

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, job: newSite(t), far: newSite(t), seen: make(chan seen, 1000)}
	b.group = newGroup(t)
	var err error
	if b.cgroup, err = b.group.Job(); err != nil {
		t.Fatal(err)
	}
	netns.Connect(b.job.Namespace, b.far.Namespace, "wan",
		[]string{"10.1.0.1/24", "2001:db8:1::1/64"}, []string{"10.1.0.2/24", "2001:db8:1::2/64"})
	b.job.Route("10.2.0.0/16", "10.1.0.2")
	b.job.Route("2001:db8:2::/48", "2001:db8:1::2")
	for _, a := range []string{"10.2.0.1/16", "10.9.0.1/16", "2001:db8:2::1/48"} {
		b.far.Address("lo", a)
	}
	b.job.Route("10.9.0.0/16", "10.1.0.2")
	for _, a := range []string{server4, server6, "10.2.0.1:22", "10.2.0.1:80", "10.2.0.1:7443", "10.2.0.1:65535", "10.9.0.1:20001"} {
		b.far.answer(b.far.listen("tcp", a), "D", nil)
	}
	for i, a := range []string{"127.0.0.1:0", "[::1]:0"} {
		b.serve(i, a)
	}
	return b
}

// serve has the proxy listen for IPv4 or IPv6.
func (b *bed) serve(i int, addr string) {
	b.t.Helper()
	b.serveWith(i, addr, markProxy)
}

// succeed has the next proxy listen at two addresses, attach its programs and then mark its listeners, in the order
// that a proxy must keep: a dead one's programs hand connections to marked listeners, and note no servers for the next.
func (b *bed) succeed(at [2]string, c Config) *Hooks {
	b.t.Helper()
	for i, a := range at {
		b.serveWith(i, a, nil)
	}
	c.Listen4, c.Listen6 = addrPort(b.proxies[0].Addr()).Port(), addrPort(b.proxies[1].Addr()).Port()
	h, err := b.tryAttach(c)
	for _, l := range b.proxies {
		raw, e := l.SyscallConn()
		if err = errors.Join(err, e); err == nil {
			err = markProxy("", "", raw)
		}
	}
	if err == nil {
		err = h.Refresh()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

func (b *bed) serveWith(i int, addr string, control func(network, address string, c syscall.RawConn) error) {
	b.t.Helper()
	l := b.job.listenWith("tcp", addr, control)
	b.proxies[i] = l
	b.job.answer(l, "P", func(c *net.TCPConn) {
		b.seen <- seen{addrPort(c.RemoteAddr()), dialledBy(c, i == 0)}
	})
}

// closeProxies closes the proxy's listeners, as the kernel does at a kill. A child that is being started has their
// descriptors too, hence the shutdown: nobody listens there when this returns.
func (b *bed) closeProxies() {
	b.t.Helper()
	for _, l := range b.proxies {
		c, err := l.SyscallConn()
		if err == nil {
			e := c.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_RD) })
			err = errors.Join(err, e)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// grouping is held while a group is made or removed. A group is made in the cgroup that this process is in, which may
// be one of a test that runs at the same time: it must not go meanwhile.
var grouping sync.Mutex

func newGroup(t *testing.T) *cgroup.Group {
	t.Helper()
	require.Root(t)
	grouping.Lock()
	g, err := cgroup.New("test")
	grouping.Unlock()
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	t.Cleanup(func() {
		grouping.Lock()
		defer grouping.Unlock()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// dialledBy asks for the original destination; zero if there is none.
func dialledBy(c *net.TCPConn, v4 bool) (dst netip.AddrPort) {
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { dst, err = originalDst(int(fd), v4) })
	}
	if err != nil {
		return netip.AddrPort{}
	}
	return dst
}

func (b *bed) config() Config {
	return Config{
		Cgroup: b.cgroup, Proxy: b.group.Proxy(), First: 1024, Last: 65535, Mark: mark, Timeout: timeout,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:2::/48"), netip.MustParsePrefix("10.1.0.0/24")},
		Tunnels:  []netip.AddrPort{netip.MustParseAddrPort("10.2.0.1:7443")},
		Listen4:  addrPort(b.proxies[0].Addr()).Port(), Listen6: addrPort(b.proxies[1].Addr()).Port(),
	}
}

// attach attaches the programs for the time of the test, with a proxy that lives.
func (b *bed) attach(c Config) *Hooks {
	b.t.Helper()
	h, err := b.tryAttach(c)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := h.Refresh(); err != nil {
		b.t.Fatal(err)
	}
	return h
}

func (b *bed) tryAttach(c Config) (h *Hooks, err error) {
	b.job.Do(func() { h, err = Attach(c) })
	if err == nil {
		b.t.Cleanup(func() {
			if err := h.Close(); err != nil {
				b.t.Error(err)
			}
		})
	}
	require.Named(b.t, "bpf", !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS), "use a kernel that lets root load programs")
	return h, err
}

func (b *bed) client() *client { return startClient(b.t, b.job, b.cgroup) }
