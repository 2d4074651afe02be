package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/pion/dtls/v2"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

const (
	dtlsHandshakeMTU = 1200 // bytes of a datagram of the handshake, which every path carries
	dtlsFlightAgain  = 300 * time.Millisecond
)

// dtlsTransport is the Transport of DTLS 1.2 over UDP. A datagramLink brings the records, with its own congestion
// control, so it needs nothing of the kernel. All that knows pion/dtls is here and in dtls_suite.go: it makes
// handshakes and alerts, and the ends of connections.
type dtlsTransport struct {
	identity *identityStore
	now      func() time.Time // Config.Now
	log      *slog.Logger
	memory   int64 // Config.Memory
	options  SocketOptions

	mu    innermostLock
	rooms map[string]*recordRoom // by the other site's id
}

// DatagramBuffer is the size in bytes of the buffers that the socket of a carrier over datagrams wants, in each
// direction.
const DatagramBuffer = udp.SocketBuffer

// room returns the room of the Links with a site.
func (t *dtlsTransport) room(id string) *recordRoom {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[id]
	if r == nil {
		r = &recordRoom{size: roomOf(t.memory)}
		if t.rooms == nil {
			t.rooms = map[string]*recordRoom{}
		}
		t.rooms[id] = r
	}
	return r
}

func (t *dtlsTransport) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d udp.Dialer
	if t.options != nil {
		d.Buffers = t.options.Buffers
	}
	c, err := d.Dial(ctx, address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w: nothing listens there by UDP; is gradproxy up, and does its tunnel.carrier say dtls too?", err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *dtlsTransport) Listen(_ context.Context, address string) (net.Listener, error) {
	return udp.Listen(address)
}

// Datagrams reports whether a connection is one of Dial or of Listen: only they are known to Secure.
func (t *dtlsTransport) Datagrams(conn net.Conn) bool {
	_, ok := conn.(*udp.Conn)
	return ok
}

// Kind returns CarrierDTLS.
func (t *dtlsTransport) Kind(net.Conn) string { return CarrierDTLS }

func (t *dtlsTransport) Secure(ctx context.Context, conn net.Conn, dialed bool, allow func(id string) error) (link Link, err error) {
	raw, ok := conn.(*udp.Conn)
	if !ok {
		return nil, fmt.Errorf("DTLS needs a connection of datagrams, not %T", conn)
	}
	gate := &recordGate{Conn: raw}
	keys := t.identity.current()
	secrets, far := &dtlsSecrets{}, &shownIdentity{}
	config := t.config(keys, secrets, far, dialed)
	// pion answers unexpected messages with errors; a panic in it must cost this handshake only.
	defer func() {
		if r := recover(); r != nil {
			link, err = nil, fmt.Errorf("DTLS with %v: the handshake failed: %v", conn.RemoteAddr(), r)
		}
	}()
	var secured *dtls.Conn
	if dialed {
		secured, err = dtls.ClientWithContext(ctx, gate, config)
	} else {
		secured, err = dtls.ServerWithContext(ctx, gate, config)
	}
	if err != nil {
		return nil, fmt.Errorf("DTLS with %v: %w", conn.RemoteAddr(), err)
	}
	gate.secured.Store(true)
	gate.settled.Store(dialed) // the last message of a handshake is the accepting side's
	if err = errors.New("it showed no certificate"); len(far.chain) > 0 {
		err = allow(far.id)
	}
	if err != nil {
		secured.Close()
		return nil, err
	}
	raw.SetDeadline(time.Time{}) // the tunnel's is the Link's from here on
	under := secrets.keys.Load()
	records, err := newDatagramLink(secured, raw, &sealedWriter{conn: raw, seal: &under.seal}, t.room(far.id))
	if err != nil {
		secured.Close()
		return nil, err
	}
	gate.openBy(&under.open, records.take)
	raw.SetKey(*secrets.move.Load(), func(hostChanged bool) {
		t.log.Info("carrier goes on from another address", "peer", far.id, "address", raw.RemoteAddr(), "dialed", dialed, "host_changed", hostChanged)
		records.moved(hostChanged)
	})
	l := &dtlsLink{datagramLink: records, open: &under.open, identity: t.identity, keys: keys, shown: far.chain}
	l.SetDeadline(time.Now().Add(handshakeWithin))
	l.expire(keys.cert.Leaf, far.chain[0])
	return l, nil
}

// A shownIdentity is the id that the far end has proved in a handshake, by its chain of certificates.
type shownIdentity struct {
	id    string
	chain []*x509.Certificate
}

// config returns the configuration of a handshake, which fills in secrets and far.
func (t *dtlsTransport) config(keys *loaded, secrets *dtlsSecrets, far *shownIdentity, dialed bool) *dtls.Config {
	usage := x509.ExtKeyUsageClientAuth
	if dialed {
		usage = x509.ExtKeyUsageServerAuth
	}
	return &dtls.Config{
		Certificates:           []tls.Certificate{keys.cert},
		CipherSuites:           []dtls.CipherSuiteID{}, // not nil: else pion's own are offered too
		CustomCipherSuites:     func() []dtls.CipherSuite { return ofConnection(secrets) },
		ExtendedMasterSecret:   dtls.RequireExtendedMasterSecret,
		ClientAuth:             dtls.RequireAnyClientCert, // verified below, as the server's is
		InsecureSkipVerify:     true,                      // of a host name: sites have SPIFFE ids
		SupportedProtocols:     []string{protocolName},    // pion refuses one that offers others, not one that offers none: HELLO does
		MTU:                    dtlsHandshakeMTU,
		FlightInterval:         dtlsFlightAgain,
		ReplayProtectionWindow: dtlsReplayWindow,
		LoggerFactory:          noLog{},
		// The address was proved before (package udp), so that nothing is kept for others.
		InsecureSkipVerifyHello: true,
		VerifyPeerCertificate: func(shown [][]byte, _ [][]*x509.Certificate) error {
			far.chain = nil
			for _, der := range shown {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					return err
				}
				far.chain = append(far.chain, c)
			}
			var err error
			far.id, err = keys.verify(far.chain, usage, t.now())
			return err
		},
	}
}

// A dtlsLink is a datagramLink over DTLS.
type dtlsLink struct {
	*datagramLink
	open     *opener
	identity *identityStore
	keys     *loaded
	shown    []*x509.Certificate // by the other end
	renewal  time.Time           // see LinkState
	expiry   time.Time
}

// expire sets when the link's certificates, of both ends, are to be renewed, and when the first of them expires.
func (l *dtlsLink) expire(certificates ...*x509.Certificate) {
	for _, c := range certificates {
		if l.expiry.IsZero() || c.NotAfter.Before(l.expiry) {
			l.expiry = c.NotAfter
			l.renewal = c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 10)
		}
	}
}

func (l *dtlsLink) State() LinkState {
	s := l.datagramLink.State()
	s.Worn = s.Worn || l.open.refused() >= rotateForged
	now := l.identity.latest()
	s.Rekeyed, s.Renewal, s.Expiry = now != l.keys, l.renewal, l.expiry
	s.Revoked = now != l.keys && now.revokes(l.shown) != nil
	return s
}
