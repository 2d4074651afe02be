package wansim

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

var namespaces atomic.Int64 // made by this process's tests

// newNamespace returns a namespace that lives as long as the test.
func newNamespace(t *testing.T) *Namespace {
	t.Helper()
	require.Root(t)
	n, err := NewNamespace(fmt.Sprintf("wansim-%d-%d", os.Getpid(), namespaces.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func output(t *testing.T, n *Namespace, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := n.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(bytes.TrimSpace(out))
}

func TestNamespaceBeginsAndEnds(t *testing.T) {
	require.Root(t)
	name := fmt.Sprintf("wansim-%d-%d", os.Getpid(), namespaces.Add(1))
	n, err := NewNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.SetHosts(nil); err != nil {
		t.Error(err)
	}
	if n.Name() != name || n.Path() != "/run/netns/"+name {
		t.Errorf("name %s, path %s", n.Name(), n.Path())
	}
	if _, err := NewNamespace(name); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second namespace of the name: %v", err)
	}
	same, err := OpenNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := same.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(n.Path()); err != nil {
		t.Errorf("Close of an opened namespace removes it: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{n.Path(), filepath.Join("/etc/netns", name)} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s after Close: %v", path, err)
		}
	}
	if _, err := OpenNamespace(name); err == nil {
		t.Error("OpenNamespace opens what is gone")
	}
}

func TestNamespaceNames(t *testing.T) {
	for _, name := range []string{"", "a/b", "..", "a b"} {
		if n, err := NewNamespace(name); err == nil {
			n.Close()
			t.Errorf("NewNamespace(%q) makes one", name)
		}
	}
}

// Sockets made in Do belong to the namespace: the same address is free in each, and its loopback is its own.
func TestDoRunsInside(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	listen := func(n *Namespace) (l net.Listener) {
		t.Helper()
		if err := n.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:4321"); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	listen(a)
	inB := listen(b)
	go func() {
		c, err := inB.Accept()
		if err == nil {
			c.Write([]byte("b"))
			c.Close()
		}
	}()
	var c net.Conn
	if err := b.Do(func() (err error) { c, err = net.Dial("tcp", "127.0.0.1:4321"); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := mustRead(t, c, 1); string(got) != "b" {
		t.Errorf("read %q", got)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := os.Readlink("/proc/thread-self/ns/net"); again != here {
		t.Errorf("the test's own thread is in %s, want %s: %v", again, here, err)
	}
}

func TestSetSysctlIsTheNamespacesOwn(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	if err := a.SetSysctl("net.ipv4.ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	const file = "/proc/sys/net/ipv4/ip_forward"
	if one, other := output(t, a, "cat", file), output(t, b, "cat", file); one != "1" || other != "0" {
		t.Errorf("ip_forward is %s there and %s elsewhere, want 1 and 0", one, other)
	}
	if got := output(t, a, "cat", "/proc/sys/net/ipv4/tcp_wmem"); strings.Fields(got)[2] != "67108864" {
		t.Errorf("tcp_wmem is %s, want at most 64 MiB", got)
	}
	if err := a.SetSysctl("net.ipv4.no_such_thing", "1"); err == nil {
		t.Error("SetSysctl sets what does not exist")
	}
}

// A command runs in the namespace, with its /etc/hosts, as the process that the Cmd names; nothing outside changes.
func TestCommandRunsInside(t *testing.T) {
	n := newNamespace(t)
	before, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, n, "cat", "/etc/hosts"); got != string(bytes.TrimSpace(before)) {
		t.Errorf("without SetHosts /etc/hosts is %q", got)
	}
	addr := netip.MustParseAddr("198.18.5.1")
	if err := n.SetHosts(map[netip.Addr][]string{addr: {"site-a", "rank0"}}); err != nil {
		t.Fatal(err)
	}
	if got := output(t, n, "getent", "hosts", "rank0"); !strings.HasPrefix(got, "198.18.5.1") {
		t.Errorf("rank0 is %q", got)
	}
	if after, err := os.ReadFile("/etc/hosts"); !bytes.Equal(after, before) {
		t.Errorf("/etc/hosts outside has changed, %v", err)
	}
	if got := output(t, n, "readlink", "/proc/self/ns/net"); got == output(t, newNamespace(t), "readlink", "/proc/self/ns/net") {
		t.Errorf("two namespaces are both %s", got)
	}
	if got := output(t, n, "printf", "%s.", "two words", "", "*"); got != "two words..*." {
		t.Errorf("arguments arrive as %q", got)
	}
	cmd := n.Command("sh", "-c", "echo $$; exit 3")
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 || strings.TrimSpace(string(out)) != fmt.Sprint(cmd.Process.Pid) {
		t.Errorf("exit code %d, process %q, want 3 and %d: %v", cmd.ProcessState.ExitCode(), out, cmd.Process.Pid, err)
	}
}
