package main

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// manager is a service manager's socket, and the states that come to it.
func manager(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(openFolder(t), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path, func() string {
		b := make([]byte, 4096)
		l.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

// The manager hears that the proxy is ready, lives, reloads and ends.
func TestRunNotifiesTheServiceManager(t *testing.T) {
	path, next := manager(t)
	cmd := gradproxyCommand(t, "run", "-c", loneSite(t), "--log-level", "error")
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=200000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(state string) {
		t.Helper()
		for {
			switch got := next(); got {
			case state:
				return
			case "WATCHDOG=1":
			default:
				t.Fatalf("%q, want %q", got, state)
			}
		}
	}
	await("READY=1")
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Fatalf("%q, want a sign of life", got)
		}
	}
	cmd.Process.Signal(syscall.SIGHUP)
	await("READY=1")
	cmd.Process.Signal(syscall.SIGTERM)
	await("STOPPING=1")
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A proxy that is stuck says nothing.
func TestStuckProxyGivesNoSignOfLife(t *testing.T) {
	path, next := manager(t)
	t.Setenv("NOTIFY_SOCKET", path)
	n, err := newNotifier()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stuck, ended := make(chan struct{}), make(chan struct{})
	times := 0
	go func() {
		defer close(ended)
		n.watch(ctx, time.Millisecond, func() {
			if times++; times == 3 {
				<-stuck
			}
		})
	}()
	for range 2 {
		next()
	}
	n.say("between") // comes before any sign of life that follows
	if got := next(); got != "between" {
		t.Errorf("%q of a proxy that is stuck", got)
	}
	stop()
	close(stuck)
	<-ended
}
