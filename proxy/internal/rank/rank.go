// Package rank has the order of the proxy's locks that are taken under each other, and watches it in tests.
package rank

import "sync"

// A Rank is a lock's place in the order. A goroutine that holds a lock may take only locks of higher ranks, and one of
// each.
type Rank int

const (
	Bypass Rank = iota + 1 // package proxy: the relay of connections that bypass the tunnel
	Relay                  // proxy/relay, whose package comment names the values that each of its locks guards
	Loop
	Table    // proxy/handover: the table of live connections
	Rest     // proxy/path: whether a connection comes to rest
	Sleepers // proxy/app: the connections that sleep
	Submit   // proxy/cache, whose package comment names the values that each of its locks guards
	Peer
	Store
	Residual // proxy/residual: all its locks, since no two of them are held at once
	Endpoint // proxy/tunnel, whose package comment names the values that each of its locks guards
	TunnelPeer
	Stream
	Session
	Gate
	Link
	Moving // proxy/tunnel/udp, whose package comment names the values that each of its locks guards
	Listener
	Way
	Innermost // of both packages: no lock is taken under it
)

// Watch, if a test has set it, is called before a lock is taken (locks; after, by TryLock) and after it was released.
var Watch func(r Rank, locks bool)

// Lock takes mu, a lock of rank r.
func Lock(mu *sync.Mutex, r Rank) {
	if Watch != nil {
		Watch(r, true)
	}
	mu.Lock()
}

// TryLock takes mu, a lock of rank r, if nobody holds it.
func TryLock(mu *sync.Mutex, r Rank) bool {
	ok := mu.TryLock()
	if ok && Watch != nil {
		Watch(r, true)
	}
	return ok
}

// Unlock releases mu, a lock of rank r.
func Unlock(mu *sync.Mutex, r Rank) {
	mu.Unlock()
	if Watch != nil {
		Watch(r, false)
	}
}
