package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	protocolName = "gradprox" // ALPN: a TLS end that is something else is refused in the handshake

	// keyBytes is how much leaves under one key: AES-GCM is good for 2^24.5 records (RFC 8446, 5.5), and crypto/tls
	// starts no key update of its own. See rotateRecords.
	keyBytes = 64 << 30
)

// tlsTransport is the Transport of TLS 1.3 over TCP. Its links are reliable streams of bytes in order: bufferedConn
// writes and reads them in large pieces, tune sets the options of the connection, bbrSocket helps BBR with bursts.
type tlsTransport struct {
	dial       func(ctx context.Context, network, address string) (net.Conn, error) // Config.Dial
	congestion string                                                               // Config.Congestion
	options    SocketOptions                                                        // Config.Options
	identity   *identityStore                                                       // nil: in clear, on loopback
	coalesce   bool                                                                 // see tlsLink
	now        func() time.Time                                                     // Config.Now
	log        *slog.Logger
}

// Listen returns a listener whose sockets, unlike net.Listen's, never speak MPTCP, which no socket filter sees.
func (t *tlsTransport) Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", address)
}

func (t *tlsTransport) Dial(ctx context.Context, address string) (net.Conn, error) {
	return t.dial(ctx, "tcp", address)
}

// dialTCP is the default of Config.Dial.
func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, network, address)
}

// loopback reports whether a never leaves the host.
func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		ip, ok := netip.AddrFromSlice(a.IP)
		return ok && ip.Unmap().IsLoopback()
	}
	return false
}

// Datagrams returns false.
func (t *tlsTransport) Datagrams(net.Conn) bool { return false }

// Kind returns CarrierTLS.
func (t *tlsTransport) Kind(net.Conn) string { return CarrierTLS }

func (t *tlsTransport) Secure(ctx context.Context, raw net.Conn, dialed bool, allow func(id string) error) (Link, error) {
	if t.identity == nil && !(loopback(raw.LocalAddr()) && loopback(raw.RemoteAddr())) {
		return nil, fmt.Errorf("in clear (Insecure) only between loopback addresses, not from %v to %v", raw.LocalAddr(), raw.RemoteAddr())
	}
	l := &tlsLink{bufferedConn: bufferedConn{Conn: raw}, coalesce: t.coalesce}
	l.congestion, l.bbr = tune(raw, t.congestion, t.options, t.log)
	l.confirmer = confirmations(raw)
	if t.identity == nil {
		l.begin()
		return l, nil
	}
	l.identity, l.keys = t.identity, t.identity.current()
	usage := x509.ExtKeyUsageClientAuth
	if dialed {
		usage = x509.ExtKeyUsageServerAuth
	}
	l.tracks = new(recordTracker)
	config := l.keys.tlsConfig(func(cs tls.ConnectionState) error {
		id, err := l.keys.verify(cs.PeerCertificates, usage, t.now())
		if err != nil {
			return err
		}
		if cs.NegotiatedProtocol != protocolName {
			return fmt.Errorf("it did not agree on ALPN %q: the other end is not a gradproxy tunnel", protocolName)
		}
		return allow(id)
	})
	if dialed {
		l.tls = tls.Client(&l.bufferedConn, config)
	} else {
		l.tls = tls.Server(&l.bufferedConn, config)
	}
	if err := l.tls.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %v: %w", raw.RemoteAddr(), err)
	}
	l.begin()
	l.tracks.records = 0 // records of the handshake do not count
	for _, leaf := range []*x509.Certificate{l.keys.cert.Leaf, l.tls.ConnectionState().PeerCertificates[0]} {
		if l.expiry.IsZero() || leaf.NotAfter.Before(l.expiry) {
			l.expiry = leaf.NotAfter
			l.renewal = leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 10)
		}
	}
	return l, nil
}

// confirmations returns the confirmer of a connection; nil: it has none.
func confirmations(conn net.Conn) confirmer {
	if c, ok := conn.(confirmer); ok {
		return c
	}
	return tcpConfirmer(conn)
}

// tlsConfig returns the configuration of one handshake. verify judges the state that the other end has proved.
func (l *loaded) tlsConfig(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{l.cert},
		NextProtos:                  []string{protocolName},
		ClientAuth:                  tls.RequireAnyClientCert, // verified by verify, as the server's is
		InsecureSkipVerify:          true,                     // of a host name: sites have SPIFFE ids, see verify
		VerifyConnection:            verify,
		SessionTicketsDisabled:      true, // every carrier proves the certificates that are valid now
		DynamicRecordSizingDisabled: true, // full records from the first byte on
	}
}

// A tlsLink is a TCP connection with TLS, or in clear.
type tlsLink struct {
	bufferedConn
	tls        *tls.Conn  // over bufferedConn; nil: in clear
	congestion string     // control of the connection at first, as the kernel calls it; "": not known
	bbr        *bbrSocket // the connection, if it is under BBR and the writer helps that; nil: left alone
	confirmer  confirmer  // the connection; nil: it does not tell

	identity *identityStore
	keys     *loaded   // this side's certificate; nil: in clear
	renewal  time.Time // see LinkState
	expiry   time.Time

	// coalesce has Write collect bytes in plain up to whole records of TLS, whose lengths an observer sees.
	coalesce bool
	plain    []byte
	held     atomic.Int64 // len(plain)

	written atomic.Uint64 // bytes handed to TLS
	writes  atomic.Uint64 // records of TLS, about

	reads uint64 // that have brought content, but no more than records have come
}

// maxWithout bounds the records of TLS without content that a link takes, with up to 23 that TLS has not looked at. No
// end sends any: crypto/tls begins no key update, and there are no tickets. A key update takes 5 µs of this side, a
// hundred times as long as bytes of that number.
const maxWithout = 64

func (l *tlsLink) Read(p []byte) (int, error) {
	if l.tls == nil {
		return l.bufferedConn.Read(p)
	}
	n, err := l.tls.Read(p)
	if n > 0 {
		l.reads = min(l.reads+1, l.tracks.records)
	}
	if err == nil && l.tracks.records-l.reads > maxWithout {
		err = broken("over %d records of TLS without content", maxWithout)
	}
	return n, err
}

// recordLen is how many bytes a record of TLS holds at most: RFC 8446, 5.1.
const recordLen = 16 << 10

func (l *tlsLink) Write(p []byte) (int, error) {
	if !l.coalesce {
		return l.encrypt(p)
	}
	l.plain = append(l.plain, p...)
	l.held.Store(int64(len(l.plain)))
	return len(p), l.encryptPlain(len(l.plain) / recordLen * recordLen)
}

// encryptPlain encrypts the first n bytes of plain.
func (l *tlsLink) encryptPlain(n int) error {
	if n == 0 {
		return nil
	}
	_, err := l.encrypt(l.plain[:n])
	l.plain = l.plain[:copy(l.plain, l.plain[n:])]
	l.held.Store(int64(len(l.plain)))
	return err
}

// settle encrypts the rest of plain, unless so much is pending that more will follow.
func (l *tlsLink) settle() error {
	if l.Pending() >= flushSize {
		return nil
	}
	return l.encryptPlain(len(l.plain))
}

func (l *tlsLink) encrypt(p []byte) (int, error) {
	l.written.Add(uint64(len(p)))
	l.writes.Add(uint64(len(p)+recordLen-1) / recordLen)
	if l.tls != nil {
		return l.tls.Write(p)
	}
	return l.bufferedConn.Write(p)
}

func (l *tlsLink) Pending() int { return l.pending() + int(l.held.Load()) }

func (l *tlsLink) Flush() error {
	if err := l.settle(); err != nil {
		return err
	}
	l.bbr.writes(l.pending())
	return l.flush()
}

func (l *tlsLink) CanTry() bool { return l.nonBlocking() }

func (l *tlsLink) TryFlush() (full bool, err error) {
	if err := l.settle(); err != nil {
		return false, err
	}
	l.bbr.writes(l.pending())
	return l.tryFlush()
}

func (l *tlsLink) Idle() { l.bbr.waits() }

// CloseWrite sends TLS's close_notify and the FIN of TCP.
func (l *tlsLink) CloseWrite() error {
	if err := l.encryptPlain(len(l.plain)); err != nil {
		return err
	}
	if l.tls != nil {
		if err := l.tls.CloseWrite(); err != nil {
			return err
		}
		l.Conn.SetWriteDeadline(time.Now().Add(handshakeWithin)) // TLS sets one that is over, before this is flushed
	}
	if err := l.flush(); err != nil {
		return err
	}
	if t, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

func (l *tlsLink) State() LinkState {
	received := l.received.Load()
	var c confirmation
	if l.confirmer != nil {
		c = l.confirmer.confirmation()
	}
	now := l.keys
	if now != nil {
		now = l.identity.latest()
	}
	return LinkState{
		Waits: c.waits, Silence: c.silence, Patience: c.patience, Network: c.network,
		Packets: c.packets, Resent: c.resent, Loss: fraction(c.resent, c.packets), RTT: c.rtt, Backlog: c.backlog,
		Received:   received,
		Congestion: l.bbr.control(l.congestion),
		Worn:       max(l.written.Load(), received) >= keyBytes || l.writes.Load() >= rotateRecords,
		Rekeyed:    now != l.keys,
		Revoked:    now != nil && now != l.keys && now.revokes(l.tls.ConnectionState().PeerCertificates) != nil,
		Renewal:    l.renewal,
		Expiry:     l.expiry,
	}
}
