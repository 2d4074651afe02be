package admin

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// Clients that hold connections take no more than maxConns descriptors: another is answered once one of them has gone.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Config{}) }()
	ask := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return c
	}
	answered := func(c net.Conn, within time.Duration) bool {
		c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 1))
		return err == nil
	}
	var held []net.Conn
	for range maxConns {
		c := ask()
		if !answered(c, time.Minute) {
			t.Fatalf("connection %d is not answered", len(held))
		}
		held = append(held, c)
	}
	late := ask()
	if answered(late, 50*time.Millisecond) {
		t.Errorf("more than %d connections are open", maxConns)
	}
	held[0].Close()
	if !answered(late, time.Minute) {
		t.Error("no connection is taken after one has gone")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
