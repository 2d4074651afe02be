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
	// A submitLock may be held while the tunnel gives no credit: for minutes, in an outage. Unlike a Mutex it lets
	// testing/synctest see that its users wait, so that virtual time goes on.
	submitLock struct {
		mu   sync.Mutex // of held
		free sync.Cond
		held bool
	}
	peerLock  struct{ mu sync.Mutex }
	storeLock struct{ mu sync.Mutex }
)

func (l *submitLock) Lock() {
	if watchLocks != nil {
		watchLocks(rankSubmit, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.free.L = &l.mu; l.held; {
		l.free.Wait()
	}
	l.held = true
}

func (l *submitLock) Unlock() {
	l.mu.Lock()
	l.held = false
	l.mu.Unlock()
	l.free.Signal()
	if watchLocks != nil {
		watchLocks(rankSubmit, false)
	}
}

func (l *peerLock) Lock()    { lock(&l.mu, rankPeer) }
func (l *peerLock) Unlock()  { unlock(&l.mu, rankPeer) }
func (l *storeLock) Lock()   { lock(&l.mu, rankStore) }
func (l *storeLock) Unlock() { unlock(&l.mu, rankStore) }

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
