package tunnel

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"
)

// A sealer13 seals records of TLS 1.3 under the keys of a client, as crypto/tls seals none: RFC 8446, 5.2 and 7.
type sealer13 struct {
	t      *testing.T
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	number uint64
}

// newSealer13 returns one of a connection that has sent a number of records, and whose secrets are in a key log.
func newSealer13(t *testing.T, keys string, number uint64) *sealer13 {
	t.Helper()
	s := &sealer13{t: t}
	for line := range strings.Lines(keys) {
		if words := strings.Fields(line); words[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(words[2])
			if err != nil {
				t.Fatal(err)
			}
			s.use(secret)
		}
	}
	if s.number = number; s.aead == nil {
		t.Fatal("the key log has no secret of the client")
	}
	return s
}

// use goes on under another secret.
func (s *sealer13) use(secret []byte) {
	block, err := aes.NewCipher(s.expand(secret, "key", 16))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		s.t.Fatal(err)
	}
	s.secret, s.iv, s.number = secret, s.expand(secret, "iv", 12), 0
}

// expand is HKDF-Expand-Label.
func (s *sealer13) expand(secret []byte, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(info, byte(len("tls13 "+label))), "tls13 "+label...)
	b, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// seal appends a record of a type.
func (s *sealer13) seal(dst []byte, of byte, content ...byte) []byte {
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+1+s.aead.Overhead()))
	nonce := bytes.Clone(s.iv)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^s.number)
	s.number++
	return s.aead.Seal(append(dst, head...), nonce, append(bytes.Clone(content), of), head)
}

// update appends a KeyUpdate that asks for another.
func (s *sealer13) update(dst []byte) []byte {
	dst = s.seal(dst, 22, 24, 0, 0, 1, 1)
	s.use(s.expand(s.secret, "traffic upd", sha256.Size))
	return dst
}

// A peer that updates its keys without end, which costs this side 5 µs for 27 bytes, is in breach of the protocol.
// crypto/tls alone takes 16 updates between any two records with content.
func TestKeyUpdatesAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		s.drain()
		var keys bytes.Buffer
		conn := s.tls(&keys)
		other := greet(t, conn, s.mallory.mine, func(h *hello) { h.place.slot = 1 })
		sealer := newSealer13(t, keys.String(), 2) // greet has sent HELLO and READY
		done := header{kind: kindDone, stream: other.id(0)}.appendShort(nil)
		var b []byte
		for range maxWithout / 2 {
			b = sealer.seal(sealer.update(b), 23, done...)
		}
		conn.NetConn().Write(b)
		s.stands()
		b = b[:0]
		for range 1000 {
			for range 16 {
				b = sealer.update(b)
			}
			b = sealer.seal(b, 23, done...)
		}
		go conn.NetConn().Write(b)
		s.fell("records of TLS without content")
		conn.NetConn().Close()
		echoes(t, s.honest)
	})
}

// However the bytes come, their records are the same.
func TestRecordTracker(t *testing.T) {
	const records = 1000
	var b []byte
	for range records {
		n := rand.IntN(50)
		b = append(binary.BigEndian.AppendUint16(append(b, 23, 3, 3), uint16(n)), make([]byte, n)...)
	}
	for range 100 {
		var tracks recordTracker
		largest := 1 + rand.IntN(200)
		for rest := b; len(rest) > 0; {
			n := min(1+rand.IntN(largest), len(rest))
			tracks.take(rest[:n])
			rest = rest[n:]
		}
		if tracks.records != records || tracks.n != 0 || tracks.rest != 0 {
			t.Fatalf("%d records, and %d and %d bytes of the next; there are %d", tracks.records, tracks.n, tracks.rest, records)
		}
	}
}
