package cache

import "sync"

// A rank is a lock's place in the order that doc.go gives. Locks are taken in ascending order.
type rank int

const (
	rankSubmit rank = iota + 1
	rankPeer
	rankStore
)

// watchLocks, if a test has set it, is called before a lock is taken (locks) and after it was released.
var watchLocks func(r rank, locks bool)

// The three locks are types of their own, so that each says its rank.
type (
	submitLock struct{ mu sync.Mutex }
	peerLock   struct{ mu sync.Mutex }
	storeLock  struct{ mu sync.Mutex }
)

func (l *submitLock) Lock()   { lock(&l.mu, rankSubmit) }
func (l *submitLock) Unlock() { unlock(&l.mu, rankSubmit) }
func (l *peerLock) Lock()     { lock(&l.mu, rankPeer) }
func (l *peerLock) Unlock()   { unlock(&l.mu, rankPeer) }
func (l *storeLock) Lock()    { lock(&l.mu, rankStore) }
func (l *storeLock) Unlock()  { unlock(&l.mu, rankStore) }

func lock(mu *sync.Mutex, r rank) {
	if watchLocks != nil {
		watchLocks(r, true)
	}
	mu.Lock()
}

func unlock(mu *sync.Mutex, r rank) {
	mu.Unlock()
	if watchLocks != nil {
		watchLocks(r, false)
	}
}
