package wansim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Where iproute2 keeps named namespaces and the files that shadow the ones of /etc in them (ip-netns(8)).
const (
	namespaceDir = "/run/netns"
	etcDir       = "/etc/netns"
)

// socketMemory is the most that TCP may buffer on a socket of a namespace: 1 Gbit/s over 500 ms. Linux's default for
// sending, 4 MB, ends at 400 Mbit/s over 80 ms.
const socketMemory = 64 << 20

// A Namespace is a named network namespace: a site. It is safe for concurrent use.
type Namespace struct {
	name   string
	handle netns.NsHandle
	routes *netlink.Handle // speaks to the kernel's routing inside the namespace
	own    bool            // made by NewNamespace
}

// NewNamespace makes a network namespace under a name that no other has, as `ip netns add` does, with its loopback up
// and TCP buffers that fill a long fat path. Needs root. Close removes it; a process that is killed leaves it behind,
// until `ip netns delete`.
func NewNamespace(name string) (*Namespace, error) {
	if name == "" || strings.ContainsAny(name, "/ \n") {
		return nil, fmt.Errorf("wansim: namespace %q: want a name without slashes and spaces", name)
	}
	path := filepath.Join(namespaceDir, name)
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("wansim: namespace %s: exists already; choose another name or `ip netns delete %[1]s`", name)
	}
	err := onThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			if !errors.Is(err, fs.ErrExist) {
				os.Remove(path)
			}
			return fmt.Errorf("wansim: make namespace %s: %w%s", name, err, hint(err))
		}
		return h.Close()
	})
	if err != nil {
		return nil, err
	}
	n, err := OpenNamespace(name)
	if err != nil {
		return nil, errors.Join(err, netns.DeleteNamed(name))
	}
	n.own = true
	if err := n.prepare(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// OpenNamespace returns the namespace of that name, which another process or `ip netns add` has made. Close leaves it
// be.
func OpenNamespace(name string) (*Namespace, error) {
	h, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("wansim: open namespace %s: %w", name, err)
	}
	// Only routing: with all of its families the library fails on kernels that lack one of them (xfrm).
	routes, err := netlink.NewHandleAt(h, unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("wansim: open namespace %s: netlink: %w%s", name, err, hint(err))
	}
	return &Namespace{name: name, handle: h, routes: routes}, nil
}

func (n *Namespace) prepare() error {
	lo, err := n.routes.LinkByName("lo")
	if err == nil {
		err = n.routes.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("wansim: namespace %s: set lo up: %w", n.name, err)
	}
	return errors.Join(
		n.SetSysctl("net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", socketMemory)),
		n.SetSysctl("net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", socketMemory)),
	)
}

// Name returns the name, which `ip netns exec` understands.
func (n *Namespace) Name() string { return n.name }

// Path returns the file that stands for the namespace.
func (n *Namespace) Path() string { return filepath.Join(namespaceDir, n.name) }

// Close lets go of the namespace and, if NewNamespace made it, removes its name and its files under /etc/netns. The
// kernel removes the namespace itself with the last process, socket and device in it.
func (n *Namespace) Close() error {
	n.routes.Close()
	err := n.handle.Close()
	if n.own {
		err = errors.Join(err, netns.DeleteNamed(n.name), os.RemoveAll(filepath.Join(etcDir, n.name)))
	}
	if err != nil {
		return fmt.Errorf("wansim: close namespace %s: %w", n.name, err)
	}
	return nil
}

// Do runs f on an operating system thread inside the namespace and returns its error. Sockets that f makes, listeners
// and connections, belong to the namespace for good; goroutines that f starts do not run in it, so dial addresses, not
// host names that have several.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("wansim: enter namespace %s: %w%s", n.name, err, hint(err))
		}
		return f()
	})
}

// onThread runs f, which may change the namespace of its thread, on a thread of its own.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("wansim: find the thread's namespace: %w", err)
			return
		}
		err = f()
		// A thread that cannot go home ends with this goroutine: nobody else may inherit where it is.
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
		result <- err
	}()
	return <-result
}

// SetSysctl sets a kernel parameter of the namespace, named like "net.ipv4.ip_forward".
func (n *Namespace) SetSysctl(name, value string) error {
	return n.Do(func() error {
		// Which namespace /proc/sys/net shows is decided by the thread that opens the file.
		path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return fmt.Errorf("wansim: namespace %s: set %s to %q: %w", n.name, name, value, err)
		}
		return nil
	})
}

// SetHosts makes /etc/netns/NAME/hosts, which Command and `ip netns exec` show as /etc/hosts, of the usual lines for
// localhost and one for each address of hosts. Jobs that publish the address of their host name need it.
func (n *Namespace) SetHosts(hosts map[netip.Addr][]string) error {
	lines := []string{"127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"}
	for addr, names := range hosts {
		lines = append(lines, addr.String()+" "+strings.Join(names, " "))
	}
	slices.Sort(lines[2:])
	dir := filepath.Join(etcDir, n.name)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "hosts"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("wansim: namespace %s: write hosts: %w", n.name, err)
	}
	return nil
}

// Command is exec.Command for a program inside the namespace: the process of the returned Cmd is, once started, that
// program itself. It needs util-linux. Unlike under `ip netns exec`, /sys stays as it is.
func (n *Namespace) Command(name string, args ...string) *exec.Cmd {
	return n.CommandContext(context.Background(), name, args...)
}

// CommandContext is Command with a context that ends the program.
func (n *Namespace) CommandContext(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--net=" + n.Path(), "--"}
	etc := filepath.Join(etcDir, n.name)
	if _, err := os.Stat(etc); err == nil {
		enter = append(enter, "unshare", "--mount", "--propagation", "private", "--", "sh", "-c", shadowEtc, "sh", etc)
	}
	enter = append(append(enter, name), args...)
	return exec.CommandContext(ctx, "nsenter", enter...)
}

// shadowEtc puts the files of the directory $1 over the files of /etc and becomes the program of the other arguments.
// It runs in a mount namespace of its own.
const shadowEtc = `for f in "$1"/*; do
	mount --bind "$f" "/etc/${f##*/}" || exit 126
done
shift
exec "$@"`

// hint returns a remedy for the error that missing privileges give.
func hint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return " (run as root)"
	}
	return ""
}
