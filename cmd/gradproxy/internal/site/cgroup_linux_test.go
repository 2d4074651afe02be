package site

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
)

// A cgroup that is named is taken from Start to Close, by one proxy at a time, and reloads change what is taken of it.
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
