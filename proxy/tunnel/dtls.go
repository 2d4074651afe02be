package tunnel

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pion/dtls/v2"
	"github.com/pion/dtls/v2/pkg/crypto/clientcertificate"
	"github.com/pion/dtls/v2/pkg/crypto/prf"
	"github.com/pion/dtls/v2/pkg/protocol"
	"github.com/pion/dtls/v2/pkg/protocol/recordlayer"
	"github.com/pion/logging"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/cpu"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

const (
	dtlsHandshakeMTU = 1200 // bytes of a datagram of the handshake, which every path carries
	dtlsFlightAgain  = 300 * time.Millisecond
)

// dtlsTransport is the Transport of DTLS 1.2 over UDP. A datagramLink brings the records, with its own congestion
// control, so it needs nothing of the kernel. Only this file knows pion/dtls, which makes handshakes and alerts, and
// the ends of connections.
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
	keys := t.identity.current()
	secrets, far := &dtlsSecrets{id: raw.ID()}, &shownIdentity{}
	gate := &recordGate{Conn: raw, secrets: secrets}
	if !dialed {
		gate.form.id = secrets.id
	}
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
	raw.SetProver(routing{&under.seal, &under.open}, func(hostChanged bool) {
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

// The suites of carriers over DTLS 1.2. pion/dtls/v2's own draw 64 bits of each nonce at random (CVE-2026-26014), so
// that one repeats after some terabytes. In these a nonce is the epoch and the sequence number of a record, which never
// repeat under one key, XOR a secret: RFC 7905, section 2.
const (
	suiteChaCha20 dtls.CipherSuiteID = 0xCCA9 // TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	suiteAES256   dtls.CipherSuiteID = 0xFFA6 // for private use (RFC 5246, A.5): AES-256-GCM with the nonces of RFC 7905

	suiteKey = 32
)

// dtlsSuites returns the suites that this side offers, the best first: AES where the processor has it.
func dtlsSuites() []dtls.CipherSuite {
	chacha := &dtlsSuite{id: suiteChaCha20, name: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", aead: chacha20poly1305.New}
	gcm := &dtlsSuite{id: suiteAES256, name: "AES-256-GCM with nonces of RFC 7905", aead: func(key []byte) (cipher.AEAD, error) {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(block)
	}}
	if hasAES() {
		return []dtls.CipherSuite{gcm, chacha}
	}
	return []dtls.CipherSuite{chacha, gcm}
}

// hasAES reports whether the processor computes AES-GCM by itself.
func hasAES() bool {
	switch runtime.GOARCH {
	case "amd64":
		return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ
	case "arm64":
		return cpu.ARM64.HasAES && cpu.ARM64.HasPMULL
	}
	return false
}

// A dtlsSuite is an AEAD with the nonces of RFC 7905, as a suite of pion/dtls.
type dtlsSuite struct {
	id   dtls.CipherSuiteID
	name string
	aead func(key []byte) (cipher.AEAD, error)
	keys atomic.Pointer[dtlsKeys]

	secured *dtlsSecrets // of a connection of this package; nil elsewhere
}

// ofConnection returns the suites that this side offers for a connection. They leave its secrets at secrets.
func ofConnection(secrets *dtlsSecrets) []dtls.CipherSuite {
	suites := dtlsSuites()
	for _, s := range suites {
		s.(*dtlsSuite).secured = secrets
	}
	return suites
}

func (s *dtlsSuite) String() string                          { return s.name }
func (s *dtlsSuite) ID() dtls.CipherSuiteID                  { return s.id }
func (s *dtlsSuite) CertificateType() clientcertificate.Type { return clientcertificate.ECDSASign }
func (s *dtlsSuite) HashFunc() func() hash.Hash              { return sha256.New }
func (s *dtlsSuite) ECC() bool                               { return true }
func (s *dtlsSuite) IsInitialized() bool                     { return s.keys.Load() != nil }

func (s *dtlsSuite) AuthenticationType() dtls.CipherSuiteAuthenticationType {
	return dtls.CipherSuiteAuthenticationTypeCertificate
}

func (s *dtlsSuite) KeyExchangeAlgorithm() dtls.CipherSuiteKeyExchangeAlgorithm {
	return dtls.CipherSuiteKeyExchangeAlgorithmEcdhe
}

// Init derives the keys of both directions.
func (s *dtlsSuite) Init(masterSecret, clientRandom, serverRandom []byte, isClient bool) error {
	k, err := prf.GenerateEncryptionKeys(masterSecret, clientRandom, serverRandom, 0, suiteKey, suiteNonce, sha256.New)
	if err != nil {
		return err
	}
	if !isClient {
		k.ClientWriteKey, k.ServerWriteKey = k.ServerWriteKey, k.ClientWriteKey
		k.ClientWriteIV, k.ServerWriteIV = k.ServerWriteIV, k.ClientWriteIV
	}
	keys := &dtlsKeys{}
	keys.seal.iv, keys.open.iv = [suiteNonce]byte(k.ClientWriteIV), [suiteNonce]byte(k.ServerWriteIV)
	if keys.seal.aead, err = s.aead(k.ClientWriteKey); err != nil {
		return err
	}
	if keys.open.aead, err = s.aead(k.ServerWriteKey); err != nil {
		return err
	}
	if s.secured != nil {
		if isClient {
			keys.seal.id = s.secured.id
		} else {
			keys.open.id = s.secured.id
		}
		s.secured.keys.Store(keys)
	}
	s.keys.Store(keys)
	return nil
}

// Encrypt returns the record raw, a header and its content, with the content encrypted. The number that pion has given
// it does not count: a sealer gives its records their numbers.
func (s *dtlsSuite) Encrypt(_ *recordlayer.RecordLayer, raw []byte) ([]byte, error) {
	if binary.BigEndian.Uint16(raw[epochAt:]) != dataEpoch {
		return nil, errEpoch
	}
	seal := &s.keys.Load().seal
	out := make([]byte, seal.header(), len(raw)+seal.overhead())
	return seal.record(raw[0], append(out, raw[dtlsHeader:]...))
}

// Decrypt returns the record in, with its content decrypted. A record that carried a connection id came through a
// recordGate, which has taken that out.
func (s *dtlsSuite) Decrypt(in []byte) ([]byte, error) {
	if len(in) < recordlayer.HeaderSize {
		return nil, errDTLSRecord
	}
	if protocol.ContentType(in[0]) == protocol.ContentTypeChangeCipherSpec { // it is never encrypted
		return in, nil
	}
	open := &s.keys.Load().open
	kind, content, err := open.record(open.whole(in))
	if err != nil {
		return nil, err
	}
	in[0] = kind
	return append(in[:recordlayer.HeaderSize], content...), nil
}

// noLog discards the log of pion/dtls: its errors say as much, and anyone can send datagrams that would fill a log.
type noLog struct{}

func (noLog) NewLogger(string) logging.LeveledLogger { return noLog{} }

func (noLog) Trace(string)          {}
func (noLog) Tracef(string, ...any) {}
func (noLog) Debug(string)          {}
func (noLog) Debugf(string, ...any) {}
func (noLog) Info(string)           {}
func (noLog) Infof(string, ...any)  {}
func (noLog) Warn(string)           {}
func (noLog) Warnf(string, ...any)  {}
func (noLog) Error(string)          {}
func (noLog) Errorf(string, ...any) {}
