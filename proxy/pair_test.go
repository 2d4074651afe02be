package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A pair is two proxies with a tunnel of plain connections between them, and an app on each side of it.
type pair struct {
	near, far *Proxy
	target    net.Listener                        // of the server app
	entry     net.Listener                        // where the client app connects, as if intercepted
	down      atomic.Bool                         // the peer is down
	opens     atomic.Pointer[func(opened []byte)] // called before a stream is opened
	mu        sync.Mutex
	streams   []*testStream
	codecs    []string     // that the proxies have; nil: all
	tamper    func([]byte) // of all streams that are opened
	narrow    int          // bytes of buffers in the kernel for bytes from the tunnel; 0: as many as it likes
}

// newPair starts a pair whose proxies understand protocols and choose by rules.
func newPair(t testing.TB, protocols []parser.Protocol, rules ...policy.Rule) *pair {
	t.Helper()
	return newPairWith(t, func(string, *Config) {}, protocols, rules...)
}

// newPairWith is newPair with configurations that change has changed, of "near" and "far".
func newPairWith(t testing.TB, change func(name string, c *Config), protocols []parser.Protocol, rules ...policy.Rule) *pair {
	t.Helper()
	chosen, err := policy.New(rules, testCodecs)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{target: listen(t), entry: listen(t)}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	settings := Settings{Policy: chosen, RefusedRetry: -1, Peers: []Peer{{Name: "far", Networks: []netip.Prefix{loopback},
		MayDial: []DialRule{{Network: loopback, First: 1, Last: 65535}}}}}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	make := func(name string) *Proxy {
		open := func(_ context.Context, _ string, opened []byte) (Stream, error) {
			if hold := p.opens.Load(); hold != nil {
				(*hold)(opened)
			}
			return p.openTo(p.other(name), opened)
		}
		c := Config{Open: open, PeerCodecs: p.has, Codecs: testCodecs, Protocols: protocols, Settings: settings, Log: log.With("proxy", name)}
		change(name, &c)
		proxy, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		return proxy
	}
	p.near, p.far = make("near"), make("far")
	go p.serve()
	return p
}

func (p *pair) has(string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.codecs
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		fmt.Printf("%s", b)
	}
	return len(b), nil
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func (p *pair) serve() {
	for {
		c, err := p.entry.Accept()
		if err != nil {
			return
		}
		go p.near.Serve(context.Background(), c.(*net.TCPConn), app.AddrOf(p.target.Addr()), func() {})
	}
}

func (p *pair) other(name string) *Proxy {
	if name == "near" {
		return p.far
	}
	return p.near
}

// open is the tunnel as the near proxy sees it.
func (p *pair) open(_ context.Context, _ string, opened []byte) (Stream, error) {
	return p.openTo(p.far, opened)
}

// openTo makes a stream of the tunnel: a loopback connection, whose other end the other proxy is given.
func (p *pair) openTo(other *Proxy, opened []byte) (Stream, error) {
	if p.down.Load() {
		return nil, tunnel.ErrPeerDown
	}
	a, b, err := pathtest.Connect()
	if err != nil {
		return nil, err
	}
	near, far := &testStream{TCPConn: a}, &testStream{TCPConn: b}
	p.mu.Lock()
	if p.narrow > 0 {
		for _, c := range []*net.TCPConn{a, b} {
			c.SetReadBuffer(p.narrow)
			c.SetWriteBuffer(p.narrow)
		}
	}
	if tamper := p.tamper; tamper != nil {
		near.tamper.Store(&tamper)
		far.tamper.Store(&tamper)
	}
	p.streams = append(p.streams, near, far)
	p.mu.Unlock()
	in := &testIncoming{answer: make(chan error, 1)}
	opened = slices.Clone(opened)
	go func() {
		other.Accept("far", opened, in, func() Stream { in.answer <- nil; return far }, func() {})
	}()
	if err := <-in.answer; err != nil {
		return nil, err
	}
	return near, nil
}

// opened returns how many streams were opened.
func (p *pair) opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams)
}

type testIncoming struct{ answer chan error }

func (in *testIncoming) Done() <-chan struct{} { return nil }
func (in *testIncoming) Refuse(code tunnel.Code, text string) {
	in.answer <- &tunnel.RefusedError{Peer: "far", Code: code, Text: text}
}

// A testStream is a stream over a connection of its own. Bytes that wait for more wait until Flush.
type testStream struct {
	*net.TCPConn
	buf    []byte
	tamper atomic.Pointer[func([]byte)] // changes the bytes that were read

	writing sync.Mutex
	mu      sync.Mutex
	waits   []byte
}

func (s *testStream) WriteMore(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, p...)
	return len(p), nil
}

func (s *testStream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	waits := s.waits
	s.waits = nil
	s.mu.Unlock()
	if _, err := s.TCPConn.Write(waits); err != nil {
		return 0, err
	}
	return s.TCPConn.Write(p)
}

func (s *testStream) Flush() { go s.Write(nil) }

func (s *testStream) ReadChunk() ([]byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	n, err := s.Read(s.buf)
	if errors.Is(err, net.ErrClosed) {
		err = tunnel.ErrClosed
	} else if err != nil && err != io.EOF {
		err = &tunnel.ResetError{Peer: "far", Code: frame.ResetByApp, Remote: true}
	}
	if tamper := s.tamper.Load(); tamper != nil {
		(*tamper)(s.buf[:n])
	}
	return s.buf[:n], err
}

func (s *testStream) Reset(tunnel.Code)                       { s.SetLinger(0); s.TCPConn.Close() }
func (s *testStream) Path() (rtt time.Duration, rate float64) { return 0, 0 }

// connect returns a new connection of the client app and its other end at the server app.
func (p *pair) connect(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	c, err := net.Dial("tcp", p.entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// testCodecs knows the test's "halves" and "quarter", and the codecs of package pathtest.
func testCodecs(text string) (codecs.Codec, error) {
	switch text {
	case "halves":
		return codecs.Values(halves{}), nil
	case "quarter":
		return codecs.Values(quarter{}), nil
	}
	return pathtest.Codec(text)
}

// newTestProxy returns a Proxy without a tunnel.
func newTestProxy(t testing.TB) *Proxy {
	t.Helper()
	chosen, err := policy.New(nil, testCodecs)
	if err != nil {
		t.Fatal(err)
	}
	tunnelDown := &pair{}
	tunnelDown.down.Store(true)
	p, err := New(Config{Open: tunnelDown.open, Codecs: testCodecs, Settings: Settings{Policy: chosen}, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
