package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A linked pair is two proxies with a real tunnel between them, whose link can be cut.
type linked struct {
	t         *testing.T
	near, far *Proxy
	target    netip.AddrPort               // address of the server app
	start     func() (net.Listener, error) // makes the server app listen there
	entry     net.Listener                 // where the client app connects, as if intercepted

	asked    chan context.Context // of each opening that the near proxy begins
	waits    context.Context      // of the last
	served   chan struct{}        // a token for each Serve that has returned
	openings atomic.Int64         // that have come to the far proxy
	answered chan struct{}        // a token for each that it is done with
	dials    chan struct{}        // a token for each dial of the far proxy

	mu       sync.Mutex
	isCut    bool
	carriers []net.Conn
}

// newLinked starts a pair whose server app, at an address of its own, does not listen yet. Its proxies have the
// settings that change makes.
func newLinked(t *testing.T, change func(near, far *Config)) *linked {
	t.Helper()
	l := &linked{t: t, entry: listen(t), asked: make(chan context.Context, 100), served: make(chan struct{}, 100),
		answered: make(chan struct{}, 100), dials: make(chan struct{}, 10000)}
	l.target, l.start = reserve(t)
	chosen, err := policy.New(nil, testCodecs)
	if err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	var nearEnd, farEnd *tunnel.Endpoint
	config := func(name, peer string) Config {
		return Config{Codecs: testCodecs, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)).With("proxy", name), Settings: Settings{Policy: chosen,
			Peers: []Peer{{Name: peer, Networks: []netip.Prefix{loopback}, MayDial: []DialRule{{Network: loopback, First: 1, Last: 65535}}}}}}
	}
	near, far := config("near", "far"), config("far", "near")
	near.Open = func(ctx context.Context, peer string, opening []byte) (Stream, error) {
		l.asked <- ctx
		s, err := nearEnd.Open(ctx, peer, opening)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	far.Open = func(context.Context, string, []byte) (Stream, error) { return nil, tunnel.ErrPeerDown }
	far.Control = func(string, string, syscall.RawConn) error { l.dials <- struct{}{}; return nil }
	if change != nil {
		change(&near, &far)
	}
	for cfg, p := range map[*Config]**Proxy{&near: &l.near, &far: &l.far} {
		if *p, err = New(*cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*p).Close)
	}
	ln, err := tunnel.Listen(tunnel.CarrierTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := func(name string, peer tunnel.Peer) *tunnel.Endpoint {
		e, err := tunnel.New(tunnel.Config{Name: name, Insecure: true, Peers: []tunnel.Peer{peer}, Accept: l.accept, Dial: l.dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	farEnd = end("far", tunnel.Peer{Name: "near"})
	go farEnd.Serve(ln)
	nearEnd = end("near", tunnel.Peer{Name: "far", Dial: ln.Addr().String()})
	for !nearEnd.Stats()[0].Session {
		time.Sleep(time.Millisecond)
	}
	return l
}

// accept is the far end of the tunnel.
func (l *linked) accept(peer string, opening []byte, in *tunnel.Incoming) {
	l.openings.Add(1)
	l.far.Accept(peer, opening, in, func() Stream { return in.Accept() }, func() {})
	l.answered <- struct{}{}
}

// serve accepts one client app and serves it.
func (l *linked) serve() {
	c, err := l.entry.Accept()
	if err != nil {
		return
	}
	l.near.Serve(context.Background(), c.(*net.TCPConn), l.target, func() {})
	l.served <- struct{}{}
}

func (l *linked) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return nil, errors.New("the link is cut")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.carriers = append(l.carriers, c)
	}
	return c, err
}

// cut cuts the link until it is mended.
func (l *linked) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, c := range l.carriers {
		c.Close()
	}
}

func (l *linked) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

// ask connects a client app, and returns once its opening waits. The proxy accepts the connection after the dial has
// returned: a reset that came sooner would fail the dial.
func (l *linked) ask() *net.TCPConn {
	l.t.Helper()
	c, err := net.Dial("tcp", l.entry.Addr().String())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	go l.serve()
	l.waits = soon(l.t, "the opening", l.asked)
	return c.(*net.TCPConn)
}

// listen makes the server app listen.
func (l *linked) listen() net.Listener {
	l.t.Helper()
	ln, err := l.start()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { ln.Close() })
	return ln
}

// reserve binds a socket, which refuses connections until listen is called. The port cannot go to another process
// meanwhile, which would answer the proxy's dials.
func reserve(t *testing.T) (at netip.AddrPort, listen func() (net.Listener, error)) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "reserved")
	t.Cleanup(func() { file.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	bound := name.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(bound.Addr), uint16(bound.Port)), func() (net.Listener, error) {
		defer file.Close()
		if err := syscall.Listen(fd, syscall.SOMAXCONN); err != nil {
			return nil, os.NewSyscallError("listen", err)
		}
		return net.FileListener(file)
	}
}

// soon waits for something that must come.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not come", what)
	}
	return v
}

func mustAddrs(s ...string) (a []netip.AddrPort) {
	for _, x := range s {
		a = append(a, netip.MustParseAddrPort(x))
	}
	return a
}
