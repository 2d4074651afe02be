package site

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
)

// A cgroup that is named is taken from Start to Close, by one proxy at a time, and reloads change which of its
// connections are taken.
func TestCgroup(t *testing.T) {
	require.Root(t)
	group, err := cgroup.New("test")
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	defer group.Close()
	before := ownCgroup(t)
	service := filepath.Join(group.Proxy(), "service")
	if err := os.Mkdir(service, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(service)

	l := newLab(t)
	c := l.load(0, "")
	c.Intercept.Mode, c.Intercept.Cgroup = config.ModeCgroup, service
	c.Tunnel.Listen = "off"
	for i := range c.Peers { // loopback cannot be taken
		c.Peers[i].Networks = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)}
	}
	s, err := Start(c, "v0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if s.JobCgroup() != service {
		t.Errorf("the cgroup is %s, want %s", s.JobCgroup(), service)
	}
	if now := ownCgroup(t); !strings.HasPrefix(now, before+"/gradproxy-paris-") || !strings.HasSuffix(now, "/proxy") {
		t.Errorf("the proxy is in %s, before it was in %s", now, before)
	}
	second := *c
	second.Admin = config.Off
	if other, err := Start(&second, "v0", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another gradproxy takes its connections") {
		t.Errorf("a second proxy for the cgroup: %v", err)
		if err == nil {
			other.Close()
		}
	}
	changed := *c
	changed.Peers = changed.Peers[:1]
	if err := s.Reload(&changed); err != nil {
		t.Error(err)
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Error(err)
	}
	shown := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "gradproxy_cgroup_") {
			shown++
		}
	}
	if shown != len(hookMetrics) {
		t.Errorf("%d metrics of the cgroup, want %d", shown, len(hookMetrics))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if now := ownCgroup(t); now != before {
		t.Errorf("after Close the process is in %s, before it was in %s", now, before)
	}
}

// When a part fails the cgroup's new connections are refused until Close, or wait, if the configuration asks for it; an
// orderly end removes the programs at once.
func TestCgroupAfterFailure(t *testing.T) {
	require.Root(t)
	require.Command(t, "bash")
	for name, x := range map[string]struct {
		refuse, hold, fails bool
		said                string
		left                bool
	}{
		"fails, refuse": {true, false, true, "new_connections=\"are refused\"", true},
		"fails, hold":   {true, true, true, "new_connections=\"wait for its restart, and are refused after 30s\"", true},
		"fails, direct": {false, false, true, "new_connections=\"go directly to their servers, in the clear\"", false},
		"ends, hold":    {true, true, false, "msg=ended", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, job, c := inCgroup(t, x.refuse)
			c.Admin, c.Intercept.Hold = "127.0.0.1:0", x.hold
			var said bytes.Buffer
			s, err := Start(c, "v0", slog.New(slog.NewTextHandler(&said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if x.fails {
				s.admin.Close() // and Serve of it fails
			} else {
				end()
			}
			if err := s.Run(ctx, t.Context()); (err != nil) != x.fails {
				t.Errorf("Run: %v", err)
			}
			if !strings.Contains(said.String(), x.said) {
				t.Errorf("the log lacks %s:\n%s", x.said, &said)
			}
			if x.left && x.hold {
				if n := attached(t, job); n == 0 {
					t.Error("no program is left after Run")
				}
			} else if x.left {
				if n := refusals(t, s, job); n != 1 {
					t.Errorf("of one connection after Run %d are refused", n)
				}
			} else if n := attached(t, job); n != 0 {
				t.Errorf("after Run %d programs are left", n)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if n := attached(t, job); n != 0 {
				t.Errorf("after Close %d programs are left", n)
			}
		})
	}
}

// inCgroup returns a group, its job's folder and the configuration of a site that takes that job's connections, without
// an admin page.
func inCgroup(t *testing.T, refuse bool) (*cgroup.Group, string, *config.Config) {
	t.Helper()
	group, err := cgroup.New("test")
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	t.Cleanup(func() { group.Close() })
	job, err := group.Job()
	if err != nil {
		t.Fatal(err)
	}
	c := newLab(t).load(0, "")
	c.Intercept.Mode, c.Intercept.Cgroup, c.Intercept.Refuse, c.Intercept.Hold = config.ModeCgroup, job, refuse, false
	c.Tunnel.Listen, c.Admin = "off", config.Off
	c.Peers = c.Peers[:1]
	c.Peers[0].Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	return group, job, c
}

// A start that fails when connections are taken already does not let connections pass that a dead proxy has refused.
func TestCgroupRefusesAfterFailedStart(t *testing.T) {
	require.Root(t)
	require.Command(t, "bash")
	for _, refuse := range []bool{true, false} {
		group, job, c := inCgroup(t, refuse)
		broken := *c
		broken.Tunnel.Cert += ".gone"
		said := "on_death: refuse: new connections are refused"
		if s, err := Start(&broken, "v0", slog.New(slog.DiscardHandler)); err == nil || strings.Contains(err.Error(), said) != refuse {
			t.Errorf("refuse %v: a start without a certificate: %v", refuse, err)
			if err == nil {
				s.Close()
			}
		}
		if n := attached(t, job); (n > 0) != refuse {
			t.Errorf("refuse %v: after it %d programs are left", refuse, n)
		}
		if refuse {
			leaveGroup(t, group)
		}
	}
}

// leaveGroup acts as the end of a process that a start has left in a cgroup below another's, and then as the next
// start.
func leaveGroup(t *testing.T, outer *cgroup.Group) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(outer.Proxy(), "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(outer.Proxy(), "gradproxy-*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left: %v %v", left, err)
	}
	for _, folder := range []string{filepath.Join(left[0], "proxy"), left[0]} {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	}
}

// attached counts the programs that decide about a cgroup's new IPv4 connections.
func attached(t *testing.T, folder string) int {
	t.Helper()
	group, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	attached, err := link.QueryPrograms(link.QueryOptions{Target: int(group.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
	if err != nil {
		t.Fatal(err)
	}
	return len(attached.Programs)
}

// refusals connects in a cgroup to a peer's network and returns how many connections the programs have refused so far.
func refusals(t *testing.T, s *Site, folder string) uint64 {
	t.Helper()
	group, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of one that is let pass and leads nowhere
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/20001")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	_ = cmd.Run()
	total, err := s.redirect.(*hooked).hooks.Total()
	if err != nil {
		t.Error(err)
	}
	return total.Refused
}

func ownCgroup(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("no cgroup of version 2")
	return ""
}
