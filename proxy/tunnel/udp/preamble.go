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
	msgGone    = 5

	messageVersion = 2

	nonceLen   = 8
	cookieLen  = 8 + 16 // time, HMAC
	headLen    = 4
	askLen     = headLen + nonceLen + cookieLen
	cookieLife = 30 * time.Second
)

type nonce [nonceLen]byte

// A message is one of the beginning of a connection, or says that a connection is not known.
type message struct {
	kind   byte
	nonce  nonce  // zero in msgGone
	cookie []byte // of cookieLen bytes, in msgAsk, msgCookie and msgBegin
	id     []byte // of IDLen bytes, in msgWelcome and msgGone
}

// parts returns the lengths of the cookie and of the connection id in messages of a kind.
func parts(kind byte) (cookie, id int) {
	switch kind {
	case msgAsk, msgCookie, msgBegin:
		return cookieLen, 0
	case msgWelcome, msgGone:
		return 0, IDLen
	}
	return 0, 0
}

func newNonce() (n nonce) {
	rand.Read(n[:])
	return n
}

func (m *message) append(dst []byte) []byte {
	dst = append(dst, m.kind, 'g', 'p', messageVersion)
	dst = append(dst, m.nonce[:]...)
	dst = append(dst, m.cookie...)
	return append(dst, m.id...)
}

// mayBeMessage reports whether b begins as a message does.
func mayBeMessage(b []byte) bool { return len(b) > 0 && b[0] >= msgAsk && b[0] <= msgGone }

// parseMessage reads a message. ok: b is one.
func parseMessage(b []byte) (m message, ok bool) {
	if len(b) < headLen+nonceLen || !mayBeMessage(b) || !bytes.Equal(b[1:headLen], []byte{'g', 'p', messageVersion}) {
		return m, false
	}
	m.kind = b[0]
	rest := b[headLen+copy(m.nonce[:], b[headLen:]):]
	cookie, id := parts(m.kind)
	if len(rest) != cookie+id {
		return m, false
	}
	m.cookie, m.id = rest[:cookie], rest[cookie:]
	return m, true
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
