package udp

import (
	"bytes"
	"crypto/rand"
)

// IDLen is how many bytes a connection id has: RFC 9146, section 3. The listener chooses the ids, so that no two of its
// connections have the same one.
const IDLen = 4

// Fields of a record that carries a connection id: RFC 9146, section 4.
const (
	withID   = 25 // tls12_cid, the type of such a record
	idAt     = 11 // behind type, version, epoch and sequence number
	idHeader = idAt + IDLen + 2
)

// A connectionID is the id that the dialing side's records carry.
type connectionID [IDLen]byte

// newID returns an id that is not taken.
func newID(taken func(connectionID) bool) (id connectionID) {
	for rand.Read(id[:]); taken(id); rand.Read(id[:]) {
	}
	return id
}

// idOf returns the connection id of the first record of a datagram, if it carries one.
func idOf(d []byte) (id connectionID, ok bool) {
	if len(d) <= idHeader || d[0] != withID || !bytes.Equal(d[1:3], []byte{254, 253}) {
		return id, false
	}
	return connectionID(d[idAt:]), true
}
