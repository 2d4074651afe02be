//go:build amd64 || arm64

package site

import (
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

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

// The rules are removed before the end of the process that probes, which takes 2 s if it is stopped: connections would
// be taken meanwhile by a proxy that is gone. A question that the stopped process has been asked, and does not answer,
// ends then; else it would be waited for.
func TestRulesAreRemovedFirst(t *testing.T) {
	require.Root(t)
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.begin(nil)
	if p.prober == nil {
		t.Fatal("no process probes")
	}
	rules := &closing{pid: p.prober.Pid()}
	if err := syscall.Kill(rules.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, rules.pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil { // until it is stopped
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(rules.pid, syscall.SIGCONT) })
	defer goOn()
	p.start(func() {
		p.prober.Living()
		goOn() // it ends by itself then
	})
	s := &Site{redirect: rules, probed: p}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second): // less than a question may take
		t.Fatal("Close waits for the answer of a process that is stopped")
	}
	if !rules.alive {
		t.Error("the process that probes had ended before the rules were removed")
	}
	if syscall.Kill(rules.pid, 0) == nil {
		t.Error("the process that probes is left")
	}
}
