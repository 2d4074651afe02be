// Package netns gives a test network namespaces of its own. They have no names, so that nothing is left behind, and
// need root.
package netns

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A Namespace is a network namespace that ends with its test. Its methods report errors to the test.
type Namespace struct {
	T      testing.TB
	handle netns.NsHandle
}

// New makes a namespace with its loopback up. It skips a test that does not run as root.
func New(t testing.TB) *Namespace {
	t.Helper()
	require.Root(t)
	n := &Namespace{T: t}
	var err error
	OnThread(func() { n.handle, err = netns.New() })
	if err != nil {
		t.Fatalf("network namespace: %v", err)
	}
	t.Cleanup(func() { n.handle.Close() })
	n.Do(func() { n.Up("lo") })
	return n
}

// Named makes a namespace of that name, with its loopback down, for programs that are told the name. The name goes with
// the test.
func Named(t testing.TB, name string) {
	t.Helper()
	require.Root(t)
	var err error
	OnThread(func() {
		var h netns.NsHandle
		if h, err = netns.NewNamed(name); err == nil {
			h.Close()
		}
	})
	if err != nil {
		t.Fatalf("network namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	})
}

// OnThread runs f on a thread that ends with it, so that f may change its namespace or drop its privileges.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		f()
	}()
	<-done
}

// Do runs f inside the namespace. Sockets that f opens, and processes that it starts, stay there.
func (n *Namespace) Do(f func()) {
	n.T.Helper()
	OnThread(func() {
		if err := netns.Set(n.handle); err != nil {
			n.T.Errorf("enter the namespace: %v", err)
			return
		}
		f()
	})
}

// Check fails the test, which goes on, if err is not nil.
func (n *Namespace) Check(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Error(err)
	}
}

// Up brings a device up. It must be called inside the namespace.
func (n *Namespace) Up(device string) {
	n.T.Helper()
	l, err := netlink.LinkByName(device)
	n.Check(err)
	if err == nil {
		n.Check(netlink.LinkSetUp(l))
	}
}

// Address gives a device that is up an address with its prefix length, as "10.1.0.1/24", and returns when the namespace
// answers at it.
func (n *Namespace) Address(device, text string) {
	n.T.Helper()
	n.Do(func() {
		n.address(device, text)
		n.awaitAddress(text)
	})
}

// address gives a device an address. It must be called inside the namespace.
func (n *Namespace) address(device, text string) {
	n.T.Helper()
	l, err := netlink.LinkByName(device)
	if err != nil {
		n.T.Error(err)
		return
	}
	addr, err := netlink.ParseAddr(text)
	if err != nil {
		n.T.Error(err)
		return
	}
	addr.Flags = syscall.IFA_F_NODAD
	n.Check(netlink.AddrAdd(l, addr))
}

// awaitAddress returns when packets to an address reach the namespace: Linux adds an IPv6 address's route later, in a
// queue that the removal of other namespaces delays, and answers "no route" until then. It must be called inside the
// namespace.
func (n *Namespace) awaitAddress(text string) {
	n.T.Helper()
	ip, _, err := net.ParseCIDR(text)
	if err != nil {
		n.T.Error(err)
		return
	}
	n.await("a route to its own address "+text, func() bool {
		routes, err := netlink.RouteGet(ip)
		return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
	})
}

// awaitCarrier returns when a device whose peer came up after it sends packets: Linux drops them until its queue for
// changes of links has seen the peer. It must be called inside the namespace.
func (n *Namespace) awaitCarrier(device string) {
	n.T.Helper()
	n.await("device "+device+" to carry packets", func() bool {
		l, err := netlink.LinkByName(device)
		return err == nil && l.Attrs().OperState == netlink.OperUp
	})
}

func (n *Namespace) await(what string, ready func() bool) {
	n.T.Helper()
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.T.Errorf("the namespace waits in vain for %s", what)
			return
		}
	}
}

// Route sends a network by way of a gateway.
func (n *Namespace) Route(network, via string) {
	n.T.Helper()
	n.Do(func() {
		_, dst, err := net.ParseCIDR(network)
		n.Check(err)
		n.Check(netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}))
	})
}

// Connect joins two namespaces by a veth pair, whose ends are both named device and have these addresses, and returns
// when the pair carries packets.
func Connect(a, b *Namespace, device string, addrsA, addrsB []string) {
	a.T.Helper()
	a.Do(func() {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(int(b.handle))}
		a.Check(netlink.LinkAdd(v))
	})
	ends := []struct {
		n     *Namespace
		addrs []string
	}{{a, addrsA}, {b, addrsB}}
	for _, end := range ends {
		end.n.Do(func() {
			for _, text := range end.addrs {
				end.n.address(device, text)
			}
			end.n.Up(device)
		})
	}
	a.Do(func() { a.awaitCarrier(device) })
	for _, end := range ends {
		end.n.Do(func() {
			for _, text := range end.addrs {
				end.n.awaitAddress(text)
			}
		})
	}
}

// Sysctl sets a kernel parameter, named as below /proc/sys, of the thread's namespace.
func Sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}
