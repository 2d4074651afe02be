package site

import (
	"errors"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
	"github.com/gradproxy/gradproxy/proxy/admin"
)

// The rules are in force from Start to Close, follow a reload, and readiness says when they cannot be refreshed.
func TestRedirect(t *testing.T) {
	require.Root(t)
	require.Command(t, "nft")
	l := newLab(t)
	c := l.load(0, "")
	c.Intercept.Mode = config.ModeRedirect
	for i := range c.Peers { // loopback cannot be redirected
		c.Peers[i].Networks = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)}
	}
	netns.New(t).Do(func() {
		list := func() string {
			b, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
			if err != nil {
				t.Errorf("nft: %v: %s", err, b)
			}
			return string(b)
		}
		c.Tunnel.Listen = "off" // the namespace has no addresses
		s, err := Start(c, "v0", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
			return
		}
		if got := list(); !strings.Contains(got, "table inet gradproxy_paris") || !strings.Contains(got, "10.1.0.0/16") {
			t.Errorf("rules after Start:\n%s", got)
		}
		if check := interceptCheck(s); check.Err != nil {
			t.Errorf("intercept: %v", check.Err)
		}
		failure := errors.New("no more")
		tell := s.redirectConfig(c).Failed
		tell(failure)
		if check := interceptCheck(s); !errors.Is(check.Err, failure) {
			t.Errorf("intercept, not refreshed: %v", check.Err)
		}
		tell(nil)
		if check := interceptCheck(s); check.Err != nil {
			t.Errorf("intercept, refreshed again: %v", check.Err)
		}
		changed := *c
		changed.Peers = changed.Peers[:1]
		if err := s.Reload(&changed); err != nil {
			t.Error(err)
		}
		if got := list(); strings.Contains(got, "10.1.0.0/16") || !strings.Contains(got, "10.0.0.0/16") {
			t.Errorf("rules after Reload:\n%s", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := list(); got != "" {
			t.Errorf("rules after Close:\n%s", got)
		}
	})
}

func interceptCheck(s *Site) admin.Check {
	for _, check := range s.checks() {
		if check.Name == "intercept" {
			return check
		}
	}
	return admin.Check{Err: errors.New("not listed")}
}
