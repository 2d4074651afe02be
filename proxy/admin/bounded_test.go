package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// Clients whose requests are being answered take no more than maxConns descriptors: another is answered once one of
// them has gone.
func TestConnectionsAreBounded(t *testing.T) {
	answer := make(chan struct{})
	ask := serving(t, Config{Peers: func(context.Context) []Excerpt { <-answer; return nil }})
	var held []net.Conn
	for range maxConns {
		held = append(held, ask("/peers"))
	}
	if answered(held[0], 50*time.Millisecond) {
		t.Fatal("a request is answered too early for this test")
	}
	late := ask("/healthz")
	if answered(late, 50*time.Millisecond) {
		t.Errorf("more than %d connections are open", maxConns)
	}
	answer <- struct{}{} // one of them has no request any more
	if !answered(late, time.Minute) {
		t.Error("no connection is taken after one has had its answer")
	}
	close(answer)
}

// Clients that send nothing, or half a request, or nothing after an answer, keep nobody out: the one that has waited
// longest gives way, however long the server would wait for its request.
func TestSilentConnectionsGiveWay(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half a request": "GET /healthz HT", "nothing after an answer": healthRequest,
		"no body": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask, members := servingFor(t, Config{}, patience{header: time.Hour, idle: time.Hour})
			var silent []net.Conn
			for range 200 {
				c := ask("")
				io.WriteString(c, text)
				silent = append(silent, c)
				if text != healthRequest {
					continue
				}
				if !answered(c, time.Minute) {
					t.Fatalf("connection %d is not answered", len(silent))
				}
				// It waits from when the server knows that its request is over, which is after the client has the
				// answer.
				for deadline := time.Now().Add(time.Minute); members.waits() < min(len(silent), maxConns); time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d connections wait after %d answers", members.waits(), len(silent))
					}
				}
			}
			began := time.Now()
			if !answered(ask("/healthz"), time.Minute) {
				t.Fatal("a request is not answered beside them")
			}
			t.Logf("answered after %v", time.Since(began))
			for _, c := range silent[:len(silent)-maxConns] { // of the others some have given way too
				c.SetReadDeadline(time.Now().Add(time.Minute))
				var late net.Error
				if _, err := io.Copy(io.Discard, c); errors.As(err, &late) && late.Timeout() {
					t.Fatalf("one of the silent connections that have waited longest is open beside %d later ones", maxConns)
				}
			}
		})
	}
}

const healthRequest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// serving serves a Config's pages until the test's end. The returned function connects, and asks for a page unless that
// is "".
func serving(t *testing.T, c Config) (ask func(page string) net.Conn) {
	t.Helper()
	ask, _ = servingFor(t, c, patience{header: time.Minute, idle: time.Minute})
	return ask
}

// waits returns how many connections wait without a request.
func (c *crowd) waits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.Len()
}

// servingFor is serving with another patience.
func servingFor(t *testing.T, c Config, p patience) (ask func(page string) net.Conn, members *crowd) {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	members = newCrowd(l, maxConns)
	go func() { ended <- servePatiently(ctx, members, c, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(page string) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if page != "" {
			io.WriteString(c, "GET "+page+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		return c
	}, members
}

// answered reports whether something comes in time.
func answered(c net.Conn, within time.Duration) bool {
	c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 1))
	return err == nil
}
