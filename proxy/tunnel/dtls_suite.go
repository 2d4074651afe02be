package tunnel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
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

// The suites of carriers over DTLS 1.2. pion/dtls/v2's own draw 64 bits of each nonce at random (CVE-2026-26014), so that one repeats
// after some terabytes. In these a nonce is the epoch and the sequence number of a record, which never repeat under one key, XOR a secret:
// RFC 7905, section 2.
const (
	suiteChaCha20 dtls.CipherSuiteID = 0xCCA9 // TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	suiteAES256   dtls.CipherSuiteID = 0xFFA6 // for private use (RFC 5246, A.5): AES-256-GCM with the nonces of RFC 7905

	suiteOverhead = recordlayer.HeaderSize + 16 // bytes that a record adds to its content: header and tag
	suiteNonce    = 12
	suiteKey      = 32

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

	// Of a connection of this package; zero elsewhere.
	exported *atomic.Pointer[[]byte] // where Init leaves the key by which the connection may move
	gate     *recordGate             // below the connection
	forged   *atomic.Uint64          // records that were not authentic
}

// ofConnection returns the suites that this side offers for a connection over gate. They leave the key at exported by which it may move, since
// pion's own exporter knows none but its own suites. They append to the content of each record with data the mark with which its datagram came, since
// pion hands on nothing else.
func ofConnection(gate *recordGate, exported *atomic.Pointer[[]byte], forged *atomic.Uint64) []dtls.CipherSuite {
	suites := dtlsSuites()
	for _, s := range suites {
		s := s.(*dtlsSuite)
		s.gate, s.exported, s.forged = gate, exported, forged
	}
	return suites
}

type dtlsKeys struct {
	seal, open     cipher.AEAD
	sealIV, openIV [suiteNonce]byte
}

var errDTLSRecord = errors.New("record is not authentic")

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
	keys := &dtlsKeys{sealIV: [suiteNonce]byte(k.ClientWriteIV), openIV: [suiteNonce]byte(k.ServerWriteIV)}
	if keys.seal, err = s.aead(k.ClientWriteKey); err != nil {
		return err
	}
	if keys.open, err = s.aead(k.ServerWriteKey); err != nil {
		return err
	}
	if s.exported != nil { // RFC 5705, section 4
		key, err := prf.PHash(masterSecret, slices.Concat([]byte(moveLabel), clientRandom, serverRandom), moveKey, sha256.New)
		if err != nil {
			return err
		}
		s.exported.Store(&key)
	}
	s.keys.Store(keys)
	return nil
}

// Encrypt returns the record raw, a header and its content, with the content encrypted.
func (s *dtlsSuite) Encrypt(_ *recordlayer.RecordLayer, raw []byte) ([]byte, error) {
	k := s.keys.Load()
	out := make([]byte, recordlayer.HeaderSize, len(raw)+k.seal.Overhead())
	copy(out, raw)
	nonce, data := recordSecrets(&k.sealIV, raw, len(raw)-recordlayer.HeaderSize)
	out = k.seal.Seal(out, nonce[:], raw[recordlayer.HeaderSize:], data[:])
	binary.BigEndian.PutUint16(out[recordlayer.HeaderSize-2:], uint16(len(out)-recordlayer.HeaderSize))
	return out, nil
}

// Decrypt returns the record in, with its content decrypted in place.
func (s *dtlsSuite) Decrypt(in []byte) ([]byte, error) {
	k := s.keys.Load()
	if len(in) < recordlayer.HeaderSize {
		return nil, errDTLSRecord
	}
	if protocol.ContentType(in[0]) == protocol.ContentTypeChangeCipherSpec { // it is never encrypted
		return in, nil
	}
	content := in[recordlayer.HeaderSize:]
	length := len(content) - k.open.Overhead()
	if length < 0 {
		return nil, errDTLSRecord
	}
	nonce, data := recordSecrets(&k.openIV, in, length)
	content, err := k.open.Open(content[:0], nonce[:], content, data[:])
	if err != nil {
		if s.forged != nil {
			s.forged.Add(1)
		}
		return nil, errDTLSRecord
	}
	out := in[:recordlayer.HeaderSize+len(content)]
	if s.gate != nil && protocol.ContentType(in[0]) == protocol.ContentTypeApplicationData {
		out = append(out, byte(s.gate.mark.Load())) // the tag's place
	}
	return out, nil
}

// recordSecrets returns the nonce and the additional data of a record with that header, whose content has length bytes in clear:
// RFC 7905, section 2, and RFC 6347, section 4.1.2.1.
func recordSecrets(iv *[suiteNonce]byte, header []byte, length int) (nonce [suiteNonce]byte, data [recordlayer.HeaderSize]byte) {
	nonce = *iv
	number := header[3:11] // epoch and sequence number
	for i, b := range number {
		nonce[suiteNonce-8+i] ^= b
	}
	copy(data[:], number)
	copy(data[8:], header[:3]) // type and version
	binary.BigEndian.PutUint16(data[11:], uint16(length))
	return nonce, data
}
