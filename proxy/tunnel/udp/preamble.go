package udp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	msgAsk     = 1
	msgCookie  = 2
	msgBegin   = 3
	msgWelcome = 4

	nonceLen   = 8
	cookieLen  = 8 + 16 // time, HMAC
	headLen    = 4
	askLen     = headLen + nonceLen + cookieLen
	cookieLife = 30 * time.Second
)

type nonce [nonceLen]byte

// A message is one of the beginning of a connection.
type message struct {
	kind   byte
	nonce  nonce
	cookie []byte // of cookieLen bytes, in all but msgWelcome
}

func newNonce() (n nonce) {
	rand.Read(n[:])
	return n
}

func (m *message) append(dst []byte) []byte {
	dst = append(dst, m.kind, 'g', 'p', 1)
	dst = append(dst, m.nonce[:]...)
	return append(dst, m.cookie...)
}

// parseMessage reads a message. ok: b is one.
func parseMessage(b []byte) (m message, ok bool) {
	if len(b) < headLen+nonceLen || b[0] < msgAsk || b[0] > msgWelcome || !bytes.Equal(b[1:headLen], []byte{'g', 'p', 1}) {
		return m, false
	}
	m.kind = b[0]
	rest := b[headLen+copy(m.nonce[:], b[headLen:]):]
	if m.kind == msgWelcome {
		return m, len(rest) == 0
	}
	m.cookie = rest
	return m, len(rest) == cookieLen
}

// A baker makes cookies and checks them, with a key that only this process has.
type baker [sha256.Size]byte

func newBaker() (b baker) {
	rand.Read(b[:])
	return b
}

// bake returns the cookie of an address and a nonce.
func (b *baker) bake(from netip.AddrPort, n nonce, now time.Time) []byte {
	c := binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))
	ip := from.Addr().As16()
	mac := hmac.New(sha256.New, b[:])
	mac.Write(c)
	mac.Write(ip[:])
	mac.Write(binary.BigEndian.AppendUint16(nil, from.Port()))
	mac.Write(n[:])
	return mac.Sum(c)[:cookieLen]
}

// good reports whether a cookie is of this baker's, for this address and nonce, and young enough.
func (b *baker) good(from netip.AddrPort, m *message, now time.Time) bool {
	at := time.Unix(int64(binary.BigEndian.Uint64(m.cookie)), 0)
	if age := now.Sub(at); age < -time.Second || age > cookieLife {
		return false
	}
	return hmac.Equal(m.cookie, b.bake(from, m.nonce, at))
}
