//go:build amd64 || arm64

package site

import (
	"log/slog"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A closing interceptor notes whether a process lives when its rules are removed.
type closing struct {
	interceptor
	pid   int
	alive bool
}

func (c *closing) Close() error {
	c.alive = syscall.Kill(c.pid, 0) == nil
	return nil
}

// The rules are removed before the end of the process that probes, which takes 2 s if it is stopped: connections would be taken meanwhile by a proxy that is gone.
func TestRulesAreRemovedFirst(t *testing.T) {
	require.Root(t)
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.begin()
	if p.prober == nil {
		t.Fatal("no process probes")
	}
	rules := &closing{pid: p.prober.Pid()}
	s := &Site{redirect: rules, probed: p}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !rules.alive {
		t.Error("the process that probes had ended before the rules were removed")
	}
	if syscall.Kill(rules.pid, 0) == nil {
		t.Error("the process that probes is left")
	}
}
