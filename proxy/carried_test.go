package proxy

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// silent returns both apps' ends of n connections that are open and have said nothing.
func silent(t *testing.T, l *linked, ln net.Listener, n int) (clients, servers []*net.TCPConn) {
	t.Helper()
	for range n {
		clients = append(clients, l.ask())
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		servers = append(servers, s.(*net.TCPConn))
	}
	for l.near.live.Len() < n || l.far.live.Len() < n {
		time.Sleep(time.Millisecond)
	}
	return clients, servers
}

// A connection that has said nothing has no goroutine at either proxy; and once either side speaks, sends its FIN or
// resets, the other hears it.
func TestSilentConnection(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("connections sleep on Linux only")
	}
	l := newLinked(t, func(near, far *Config) { near.PollGates, far.PollGates = -1, -1 })
	ln := l.listen()
	before := runtime.NumGoroutine()
	const n = 90
	clients, servers := silent(t, l, ln, n)
	const others = 20 // of the tunnel, and of openings that end
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		goroutines := runtime.NumGoroutine() - before
		if goroutines <= others {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d silent connections take %d goroutines in two proxies", n, goroutines)
		}
	}

	said := func(from, to *net.TCPConn) {
		t.Helper()
		got := make([]byte, 2)
		if _, err := from.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "hi" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	said(clients[0], servers[0])
	said(servers[1], clients[1])
	for i, end := range [][2]*net.TCPConn{2: {clients[2], servers[2]}, 3: {servers[3], clients[3]}} {
		if i < 2 {
			continue
		}
		end[0].CloseWrite()
		if _, err := end[1].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after a FIN of the other side: %v", err)
		}
		said(end[1], end[0])
	}
	for i, end := range [][2]*net.TCPConn{4: {clients[4], servers[4]}, 5: {servers[5], clients[5]}} {
		if i < 4 {
			continue
		}
		app.Reset(end[0])
		if _, err := end[1].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a reset by the other side: %v", err)
		}
	}
	l.far.Close() // it resets the ones that have stayed silent
	if _, err := servers[6].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the end of the proxy: %v", err)
	}
	if _, err := clients[6].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the end of the far proxy: %v", err)
	}
}
