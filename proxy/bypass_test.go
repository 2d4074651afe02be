package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// A server behind no peer is reached from here: bytes and ends come as they are, and a drain waits for the connection,
// or resets it.
func TestBypass(t *testing.T) {
	p := newPair(t, nil)
	p.near.Apply(Settings{Policy: p.near.env.Policy()})
	client, server := p.connect(t)
	defer client.Close()
	defer server.Close()
	data := pathtest.Random(rand.New(rand.NewPCG(1, 2)), 3<<20)
	go func() {
		client.Write(data)
		client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d arrive, or others: %v", len(got), len(data), err)
	}
	server.Write([]byte("answer"))
	server.CloseWrite()
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Fatalf("%q comes back: %v", got, err)
	}

	client, server = p.connect(t)
	defer client.Close()
	defer server.Close()
	server.Write([]byte("here"))
	io.ReadFull(client, make([]byte, 4))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.near.Drain(ctx); err == nil {
		t.Error("a drain without time leaves nothing to complain about")
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v after a drain, want a reset", err)
	}
}

// A connection that bypasses the tunnel has a second place, for which it waits, and which it gives back.
func TestBypassTakesPlace(t *testing.T) {
	places := &testPlaces{free: make(chan struct{}, 1), waits: make(chan struct{}, 2)}
	p := newPairWith(t, func(name string, c *Config) {
		if name == "near" {
			c.Places = places
		}
	}, nil)
	p.near.Apply(Settings{Policy: p.near.env.Policy()})
	places.Leave()
	client, server := p.connect(t)
	<-places.waits
	second, err := net.Dial("tcp", p.entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	<-places.waits
	p.target.(*net.TCPListener).SetDeadline(time.Now().Add(200 * time.Millisecond))
	if c, err := p.target.Accept(); err == nil {
		c.Close()
		t.Error("a server is dialled for which there is no place")
	}
	p.target.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	client.Close()
	server.Close()
	c, err := p.target.Accept()
	if err != nil {
		t.Fatalf("a place that was left is not free: %v", err)
	}
	c.Close()
}

// testPlaces say when somebody waits for one.
type testPlaces struct{ free, waits chan struct{} }

func (p *testPlaces) Leave() { p.free <- struct{}{} }

func (p *testPlaces) Enter(ctx context.Context) bool {
	p.waits <- struct{}{}
	select {
	case <-p.free:
		return true
	case <-ctx.Done():
		return false
	}
}

// A connection that would come back to the proxy is reset.
func TestBypassToItself(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		target := listen(t)
		own := app.AddrOf(target.Addr())
		p := newPairWith(t, func(_ string, c *Config) { c.Own = []netip.AddrPort{own} }, nil)
		p.near.Apply(Settings{Policy: p.near.env.Policy()})
		client, c, err := pathtest.Connect()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		p.near.Serve(t.Context(), c, netip.AddrPortFrom(netip.MustParseAddr(host), own.Port()), func() {})
		client.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client sees %v, want a reset", err)
		}
		target.(*net.TCPListener).SetDeadline(time.Unix(1, 0))
		if _, err := target.Accept(); err == nil {
			t.Error("the proxy dials itself")
		}
	}
}

// Bytes that bypass the tunnel are counted while the connection is open.
func TestBypassCounts(t *testing.T) {
	metrics := NewMetrics(prometheus.NewRegistry())
	p := newPairWith(t, func(_ string, c *Config) { c.Metrics = metrics }, nil)
	p.near.Apply(Settings{Policy: p.near.env.Policy()})
	client, server := p.connect(t)
	defer client.Close()
	defer server.Close()
	client.Write(make([]byte, 1000))
	io.ReadFull(server, make([]byte, 1000))
	server.Write(make([]byte, 10)) // the relay counts a step's bytes before it takes the next
	io.ReadFull(client, make([]byte, 10))
	if n := testutil.ToFloat64(metrics.delivered.WithLabelValues("", "")); n < 1000 {
		t.Errorf("%v bytes are counted of 1010 while the connection is open", n)
	}
}

// A server behind no peer that refuses is reported as a reset.
func TestBypassRefused(t *testing.T) {
	p := newPair(t, nil)
	p.near.Apply(Settings{Policy: p.near.env.Policy()})
	p.target.Close()
	client, c, err := pathtest.Connect() // not by the entry, which may reset it before Dial returns
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p.near.Serve(t.Context(), c, app.AddrOf(p.target.Addr()), func() {})
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, want a reset", err)
	}
}
