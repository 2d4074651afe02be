package tunnel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/pion/dtls/v2"
	"github.com/pion/dtls/v2/pkg/crypto/clientcertificate"
	"github.com/pion/dtls/v2/pkg/crypto/prf"
	"github.com/pion/dtls/v2/pkg/protocol"
	"github.com/pion/dtls/v2/pkg/protocol/recordlayer"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/cpu"
)

// The suites of carriers over DTLS 1.2. pion/dtls/v2's own draw 64 bits of each nonce at random (CVE-2026-26014), so
// that one repeats after some terabytes. In these a nonce is the epoch and the sequence number of a record, which never
// repeat under one key, XOR a secret: RFC 7905, section 2.
const (
	suiteChaCha20 dtls.CipherSuiteID = 0xCCA9 // TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	suiteAES256   dtls.CipherSuiteID = 0xFFA6 // for private use (RFC 5246, A.5): AES-256-GCM with the nonces of RFC 7905

	suiteKey = 32

	moveLabel = "EXPORTER-gradproxy-move" // of the key that proves that a connection goes on from another address: RFC 5705
	moveKey   = 32
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

// dtlsSecrets are the secrets that a connection's suite leaves for the layers around pion, which hands on none.
type dtlsSecrets struct {
	keys atomic.Pointer[dtlsKeys]
	move atomic.Pointer[[]byte] // the key by which the connection may move: pion's own exporter knows none but its own suites
}

// ofConnection returns the suites that this side offers for a connection. They leave its secrets at secrets.
func ofConnection(secrets *dtlsSecrets) []dtls.CipherSuite {
	suites := dtlsSuites()
	for _, s := range suites {
		s.(*dtlsSuite).secured = secrets
	}
	return suites
}

// dtlsKeys are the keys of a connection. Its only handshake makes them, for epoch 1.
type dtlsKeys struct {
	seal sealer
	open opener
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
	if s.secured != nil { // RFC 5705, section 4
		key, err := prf.PHash(masterSecret, slices.Concat([]byte(moveLabel), clientRandom, serverRandom), moveKey, sha256.New)
		if err != nil {
			return err
		}
		s.secured.move.Store(&key)
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
	out := append(make([]byte, 0, len(raw)+suiteTag), raw...)
	return s.keys.Load().seal.record(out)
}

// Decrypt returns the record in, with its content decrypted in place.
func (s *dtlsSuite) Decrypt(in []byte) ([]byte, error) {
	if len(in) < recordlayer.HeaderSize {
		return nil, errDTLSRecord
	}
	if protocol.ContentType(in[0]) == protocol.ContentTypeChangeCipherSpec { // it is never encrypted
		return in, nil
	}
	content, err := s.keys.Load().open.record(in)
	return in[:recordlayer.HeaderSize+len(content)], err
}
