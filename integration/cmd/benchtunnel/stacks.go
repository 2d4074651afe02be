//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/pion/dtls/v2"
	"github.com/pion/logging"
	"github.com/pion/sctp"
	"github.com/quic-go/quic-go"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// A place has sockets at the two ends of a path.
type place struct {
	near, far func(func() error) error // run a function where an end's sockets are
	from, to  string                   // their addresses
}

// here is loopback.
func here() place {
	run := func(f func() error) error { return f() }
	return place{run, run, "127.0.0.1", "127.0.0.1"}
}

// across is the path between two sites.
func across(w *testbed.WAN) place {
	a, b := w.Sites[0], w.Sites[1]
	return place{a.Do, b.Do, a.Addr.String(), b.Addr.String()}
}

// A flow takes bytes at one end of a path and brings them to the other one.
type flow struct {
	near io.Writer
	far  io.Reader
}

// A stack makes flows that share a connection. close ends them.
type stack struct {
	name    string
	message int // bytes of a Write
	connect func(ctx context.Context, at place, keys *keys, n int) (flows []flow, close func(), err error)
}

var (
	bareTLS   = stack{"tls", 64 << 10, connectTLS}
	ownDTLS   = stack{"dtls", 64 << 10, connectOwn}
	quicGo    = stack{"quic-go", 64 << 10, connectQUIC}
	pionSCTP  = stack{"pion-sctp", 64 << 10, connectSCTP}
	pionPlain = stack{"pion-dtls", 1350, connectPion} // datagrams; some are lost
)

// keys are the certificates of two sites, a and b.
type keys struct {
	dir  string
	cert [2]tls.Certificate
	pool *x509.CertPool
}

// newKeys makes them in a folder.
func newKeys(dir string) (*keys, error) {
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: "bench", Sites: []string{"a", "b"}}); err != nil {
		return nil, err
	}
	return loadKeys(dir)
}

func loadKeys(dir string) (*keys, error) {
	k := &keys{dir: dir, pool: x509.NewCertPool()}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	k.pool.AppendCertsFromPEM(ca)
	for i, site := range []string{"a", "b"} {
		if k.cert[i], err = tls.LoadX509KeyPair(filepath.Join(dir, site+".pem"), filepath.Join(dir, site+".key")); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// config returns the configuration of TLS of an end, 0 or 1. Certificates are of the authority; names are not checked,
// since sites have none.
func (k *keys) config(end int) *tls.Config {
	verify := func(s tls.ConnectionState) error {
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: k.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	return &tls.Config{Certificates: []tls.Certificate{k.cert[end]}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: verify, MinVersion: tls.VersionTLS13, NextProtos: []string{"bench"}, SessionTicketsDisabled: true}
}

// both runs the two ends of a handshake and closes their connections if one fails.
func both(near, far func() error) error {
	other := make(chan error, 1)
	go func() { other <- far() }()
	err := near()
	return errors.Join(err, <-other)
}

// connectTLS makes a connection of TLS 1.3 for each flow.
func connectTLS(ctx context.Context, at place, k *keys, n int) (flows []flow, close func(), err error) {
	var l net.Listener
	if err := at.far(func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(at.to, "0")); return err }); err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var all []net.Conn
	close = func() {
		for _, c := range all {
			c.Close()
		}
	}
	for range n {
		var raw net.Conn
		if err := at.near(func() (err error) { raw, err = new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String()); return err }); err != nil {
			return nil, close, err
		}
		accepted, err := l.Accept()
		if err != nil {
			return nil, close, err
		}
		client, server := tls.Client(raw, k.config(0)), tls.Server(accepted, k.config(1))
		all = append(all, client, server)
		if err := both(client.Handshake, server.Handshake); err != nil {
			return nil, close, err
		}
		flows = append(flows, flow{client, server})
	}
	return flows, close, nil
}

// connectOwn makes streams of the tunnel over datagrams.
func connectOwn(ctx context.Context, at place, k *keys, n int) (flows []flow, close func(), err error) {
	accepted := make(chan *tunnel.Stream, n)
	site := func(name string, peer tunnel.Peer) (*tunnel.Endpoint, error) {
		return tunnel.New(tunnel.Config{Name: name, Carrier: tunnel.CarrierDTLS, Peers: []tunnel.Peer{peer},
			Identity: tunnel.Identity{Cert: filepath.Join(k.dir, name+".pem"), Key: filepath.Join(k.dir, name+".key"), CA: filepath.Join(k.dir, "ca.pem")},
			Accept:   func(_ string, _ []byte, in *tunnel.Incoming) { accepted <- in.Accept() }})
	}
	b, err := site("b", tunnel.Peer{Name: "a", ID: "spiffe://bench/a"})
	if err != nil {
		return nil, nil, err
	}
	l, err := tunnel.Listen(tunnel.CarrierDTLS, net.JoinHostPort(at.to, "0"))
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	go b.Serve(l)
	a, err := site("a", tunnel.Peer{Name: "b", ID: "spiffe://bench/b", Dial: l.Addr().String()})
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	close = func() { a.Close(); b.Close() }
	if err := a.Await(ctx, "b"); err != nil {
		return nil, close, err
	}
	for range n {
		s, err := a.Open(ctx, "b", nil)
		if err != nil {
			return nil, close, err
		}
		flows = append(flows, flow{s, chunks{<-accepted}})
	}
	return flows, close, nil
}

// chunks reads a Stream without a copy, as the proxy does: the bytes are not given to the caller.
type chunks struct{ *tunnel.Stream }

func (c chunks) Read([]byte) (int, error) {
	b, err := c.ReadChunk()
	return len(b), err
}

// sockets makes a socket of UDP at each end.
func (at place) sockets() (near, far *net.UDPConn, err error) {
	open := func(address string) (c *net.UDPConn, err error) {
		p, err := net.ListenPacket("udp4", address)
		if err != nil {
			return nil, err
		}
		c = p.(*net.UDPConn)
		c.SetReadBuffer(7 << 20)
		c.SetWriteBuffer(7 << 20)
		return c, nil
	}
	if err := at.far(func() (err error) { far, err = open(at.to + ":0"); return err }); err != nil {
		return nil, nil, err
	}
	if err := at.near(func() (err error) { near, err = open(at.from + ":0"); return err }); err != nil {
		far.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// connectQUIC makes streams of one connection of quic-go, with windows that are no limit.
func connectQUIC(ctx context.Context, at place, k *keys, n int) (flows []flow, close func(), err error) {
	near, far, err := at.sockets()
	if err != nil {
		return nil, nil, err
	}
	close = func() { near.Close(); far.Close() }
	const window = 64 << 20
	config := &quic.Config{InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window, InitialConnectionReceiveWindow: 2 * window,
		MaxConnectionReceiveWindow: 2 * window, MaxIncomingUniStreams: int64(n)}
	l, err := quic.Listen(far, k.config(1), config)
	if err != nil {
		return nil, close, err
	}
	var client, server *quic.Conn
	if err := both(func() (err error) {
		client, err = quic.Dial(ctx, near, far.LocalAddr(), k.config(0), config)
		return err
	},
		func() (err error) { server, err = l.Accept(ctx); return err }); err != nil {
		return nil, close, err
	}
	close = func() { client.CloseWithError(0, ""); l.Close(); near.Close(); far.Close() }
	for range n {
		out, err := client.OpenUniStreamSync(ctx)
		if err != nil {
			return nil, close, err
		}
		if _, err := out.Write([]byte{0}); err != nil { // the other end hears of it
			return nil, close, err
		}
		in, err := server.AcceptUniStream(ctx)
		if err != nil {
			return nil, close, err
		}
		flows = append(flows, flow{out, in})
	}
	return flows, close, nil
}

// pionPair makes a connection of pion/dtls, with its own suites and nothing beneath.
func pionPair(ctx context.Context, at place, k *keys) (client, server *dtls.Conn, err error) {
	near, far, err := at.sockets()
	if err != nil {
		return nil, nil, err
	}
	config := func(end int) *dtls.Config {
		return &dtls.Config{Certificates: []tls.Certificate{k.cert[end]}, InsecureSkipVerify: true, ClientAuth: dtls.RequireAnyClientCert,
			ReplayProtectionWindow: 4096}
	}
	if err := both(func() (err error) {
		client, err = dtls.ClientWithContext(ctx, between{near, far.LocalAddr()}, config(0))
		return err
	},
		func() (err error) {
			server, err = dtls.ServerWithContext(ctx, between{far, &net.UDPAddr{IP: net.ParseIP(at.from), Port: near.LocalAddr().(*net.UDPAddr).Port}}, config(1))
			return err
		}); err != nil {
		near.Close()
		far.Close()
		return nil, nil, err
	}
	return client, server, nil
}

// between is a socket with one other end.
type between struct {
	*net.UDPConn
	other net.Addr
}

func (b between) Read(p []byte) (int, error)  { n, _, err := b.ReadFrom(p); return n, err }
func (b between) Write(p []byte) (int, error) { return b.WriteTo(p, b.other) }
func (b between) RemoteAddr() net.Addr        { return b.other }

func connectPion(ctx context.Context, at place, k *keys, n int) (flows []flow, close func(), err error) {
	if n != 1 {
		return nil, nil, fmt.Errorf("%d flows of datagrams: want 1", n)
	}
	client, server, err := pionPair(ctx, at, k)
	if err != nil {
		return nil, nil, err
	}
	return []flow{{client, server}}, func() { client.Close(); server.Close() }, nil
}

// connectSCTP makes streams of pion/sctp over pion/dtls, as WebRTC has them, with windows that are no limit.
func connectSCTP(ctx context.Context, at place, k *keys, n int) (flows []flow, close func(), err error) {
	client, server, err := pionPair(ctx, at, k)
	if err != nil {
		return nil, nil, err
	}
	close = func() { client.Close(); server.Close() }
	quiet := logging.NewDefaultLoggerFactory()
	quiet.DefaultLogLevel = logging.LogLevelDisabled
	config := func(c net.Conn) sctp.Config {
		return sctp.Config{NetConn: c, BlockWrite: true, MaxReceiveBufferSize: 32 << 20, LoggerFactory: quiet, MTU: 1300}
	}
	var near, far *sctp.Association
	if err := both(func() (err error) { near, err = sctp.Client(config(client)); return err },
		func() (err error) { far, err = sctp.Server(config(server)); return err }); err != nil {
		return nil, close, err
	}
	close = func() { near.Close(); far.Close(); client.Close(); server.Close() }
	for i := range n {
		out, err := near.OpenStream(uint16(i), sctp.PayloadTypeWebRTCBinary)
		if err != nil {
			return nil, close, err
		}
		if _, err := out.Write([]byte{0}); err != nil {
			return nil, close, err
		}
		in, err := far.AcceptStream()
		if err != nil {
			return nil, close, err
		}
		flows = append(flows, flow{out, in})
	}
	return flows, close, nil
}
