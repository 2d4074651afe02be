// Package mix makes the keys of tensors, which both proxies must make alike.
package mix

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"
)

// Words returns a 64-bit hash of words, which is never 0.
func Words(words ...uint64) uint64 {
	var buf [64]byte
	b := buf[:0]
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if h := xxhash.Sum64(b); h != 0 {
		return h
	}
	return 1
}

// The first word of a mix says how its other words are made. Packages that use Job begin theirs with words from Free
// on.
const (
	seedOfJob    = iota // a configured job
	seedOfServer        // a server, where no job is configured
	Free
)

// A Scope is the name that connections must have in common to share facts: hashes of the peer, for which each proxy has
// another name, and of its job. Peers of a job need not trust each other, and the facts that a peer tells are bounded
// for all its scopes together.
type Scope struct{ Peer, Job uint64 }

// Job returns the scope of a connection, and the seed of its tensors' keys. The two follow from the configured job, or
// without one from the server.
func Job(job, peer string, server netip.AddrPort) (scope Scope, seed uint64) {
	if job != "" {
		seed = Words(seedOfJob, xxhash.Sum64String(job))
	} else {
		addr := server.Addr().As16()
		seed = Words(seedOfServer, xxhash.Sum64(addr[:]), uint64(server.Port())) // users choose the port
	}
	return Scope{xxhash.Sum64String(peer), seed}, seed
}
