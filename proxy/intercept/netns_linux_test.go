package intercept

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A site is a network namespace of a test's own. It has no name, so nothing is left behind.
type site struct {
	t  *testing.T
	ns netns.NsHandle
}

// newSite makes a namespace with its loopback up.
func newSite(t *testing.T) *site {
	t.Helper()
	require.Root(t)
	s := &site{t: t}
	onThread(func() {
		ns, err := netns.New()
		if err != nil {
			t.Errorf("network namespace: %v", err)
			return
		}
		s.ns = ns
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { s.ns.Close() })
	s.do(func() { s.up("lo") })
	return s
}

// onThread runs f on a thread that ends with it, so that f may change its namespace or drop its privileges.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		f()
	}()
	<-done
}

// do runs f inside the site. Sockets that f opens stay there.
func (s *site) do(f func()) {
	s.t.Helper()
	onThread(func() {
		if err := netns.Set(s.ns); err != nil {
			s.t.Errorf("enter the namespace: %v", err)
			return
		}
		f()
	})
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

func (s *site) up(name string) {
	link, err := netlink.LinkByName(name)
	s.check(err)
	if err == nil {
		s.check(netlink.LinkSetUp(link))
	}
}

// connect joins two sites by a veth pair named link at both ends, with these addresses.
func connect(a, b *site, link string, addrsA, addrsB []string) {
	a.do(func() {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: link, PeerNamespace: netlink.NsFd(int(b.ns))}
		a.check(netlink.LinkAdd(v))
	})
	for _, end := range []struct {
		s     *site
		addrs []string
	}{{a, addrsA}, {b, addrsB}} {
		end.s.do(func() {
			l, err := netlink.LinkByName(link)
			end.s.check(err)
			for _, text := range end.addrs {
				addr, err := netlink.ParseAddr(text)
				end.s.check(err)
				addr.Flags = syscall.IFA_F_NODAD
				end.s.check(netlink.AddrAdd(l, addr))
			}
			end.s.up(link)
		})
	}
}

// route sends a network by way of a gateway.
func (s *site) route(network, via string) {
	s.do(func() {
		_, dst, err := net.ParseCIDR(network)
		s.check(err)
		s.check(netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}))
	})
}

// answer listens on addr inside the site and answers each connection with its own word, then echoes.
func (s *site) answer(addr, word string) {
	s.t.Helper()
	s.do(func() {
		l, err := listen("tcp", netip.MustParseAddrPort(addr), nil)
		if err != nil {
			s.t.Error(err)
			return
		}
		s.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.AcceptTCP()
				if err != nil {
					return
				}
				go say(c, word)
			}
		}()
	})
}

// say writes a word of one byte, then echoes until the connection ends.
func say(c *net.TCPConn, word string) {
	defer c.Close()
	if _, err := io.WriteString(c, word); err == nil {
		_, _ = io.Copy(c, c)
	}
}

// dial connects from inside the site.
func (s *site) dial(addr string) (c net.Conn, err error) {
	s.do(func() { c, err = net.Dial("tcp", addr) })
	if err == nil {
		s.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// whoAnswers dials and returns the word of who accepted, "refused", or the error.
func (s *site) whoAnswers(addr string) string {
	c, err := s.dial(addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		return err.Error()
	}
	defer c.Close()
	return readWord(c)
}

func readWord(c net.Conn) string {
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		return err.Error()
	}
	return string(b)
}

// echoes fails the test unless the connection still carries bytes both ways.
func echoes(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if got := readWord(c); got != "x" {
		t.Errorf("%s: read %q, want the echo", what, got)
	}
}

// openConn returns a connection to the site's nf_tables.
func openConn(s *site) (conn *nftables.Conn) {
	s.do(func() {
		var err error
		conn, err = nftables.New(nftables.AsLasting())
		s.check(err)
	})
	s.t.Cleanup(func() { conn.CloseLasting() })
	return conn
}

// sysctl writes a setting of the thread's namespace.
func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
}

// dropCapability takes one capability from the thread.
func dropCapability(which uint) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		return err
	}
	d := &data[which/32]
	d.Effective &^= 1 << (which % 32)
	d.Permitted &^= 1 << (which % 32)
	d.Inheritable &^= 1 << (which % 32)
	return unix.Capset(&h, &data[0])
}
