package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/pion/dtls/v2"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

const (
	dtlsHandshakeMTU = 1200 // bytes of a datagram of the handshake, which every path carries
	dtlsFlightAgain  = 300 * time.Millisecond
)

// dtlsTransport is the Transport of DTLS 1.2 over UDP. A datagramLink brings the records, with its own congestion control, so it needs
// nothing of the kernel. All that knows pion/dtls is here and in dtls_suite.go: it makes handshakes and alerts, and the ends of connections.
type dtlsTransport struct {
	identity *identityStore
	now      func() time.Time // Config.Now
	log      *slog.Logger
	memory   int64 // Config.Memory

	mu    sync.Mutex
	rooms map[string]*recordRoom // by the other site's id
}

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
	c, err := udp.Dial(ctx, address)
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

func (t *dtlsTransport) Secure(ctx context.Context, conn net.Conn, dialed bool, allow func(id string) error) (link Link, err error) {
	raw, ok := conn.(*udp.Conn)
	if !ok {
		return nil, fmt.Errorf("DTLS needs a connection of datagrams, not %T", conn)
	}
	gate := &recordGate{Conn: raw}
	keys := t.identity.current()
	usage := x509.ExtKeyUsageClientAuth
	if dialed {
		usage = x509.ExtKeyUsageServerAuth
	}
	var id string
	var chain []*x509.Certificate
	secrets := &dtlsSecrets{}
	config := &dtls.Config{
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
			chain = nil
			for _, der := range shown {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					return err
				}
				chain = append(chain, c)
			}
			id, err = keys.verify(chain, usage, t.now())
			return err
		},
	}
	// pion answers what it does not expect with errors; a panic in it must cost this handshake only.
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
	if err = errors.New("it showed no certificate"); len(chain) > 0 {
		err = allow(id)
	}
	if err != nil {
		secured.Close()
		return nil, err
	}
	raw.SetDeadline(time.Time{}) // the tunnel's is the Link's from here on
	under := secrets.keys.Load()
	records, err := newDatagramLink(secured, raw, &sealedWriter{conn: raw, seal: &under.seal}, t.room(id))
	if err != nil {
		secured.Close()
		return nil, err
	}
	gate.openBy(&under.open, records.take)
	raw.SetKey(*secrets.move.Load(), func(far bool) {
		t.log.Info("carrier goes on from another address", "peer", id, "address", raw.RemoteAddr(), "dialed", dialed, "host_changed", far)
		records.moved(far)
	})
	l := &dtlsLink{datagramLink: records, open: &under.open, identity: t.identity, keys: keys, shown: chain}
	l.SetDeadline(time.Now().Add(handshakeWithin))
	for _, c := range []*x509.Certificate{keys.cert.Leaf, chain[0]} {
		if l.expiry.IsZero() || c.NotAfter.Before(l.expiry) {
			l.expiry = c.NotAfter
			l.renewal = c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 10)
		}
	}
	return l, nil
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

func (l *dtlsLink) State() LinkState {
	s := l.datagramLink.State()
	s.Worn = s.Worn || l.open.refused() >= rotateForged
	now := l.identity.latest()
	s.Rekeyed, s.Renewal, s.Expiry = now != l.keys, l.renewal, l.expiry
	s.Revoked = now != l.keys && now.revokes(l.shown) != nil
	return s
}
