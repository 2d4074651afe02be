package cache

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

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
	rank.Lock(&l.mu, rank.Submit)
	defer l.mu.Unlock() // the rank is held on
	for l.free.L = &l.mu; l.held; {
		l.free.Wait()
	}
	l.held = true
}

func (l *submitLock) Unlock() {
	l.mu.Lock()
	l.held = false
	rank.Unlock(&l.mu, rank.Submit)
	l.free.Signal()
}

func (l *peerLock) Lock()    { rank.Lock(&l.mu, rank.Peer) }
func (l *peerLock) Unlock()  { rank.Unlock(&l.mu, rank.Peer) }
func (l *storeLock) Lock()   { rank.Lock(&l.mu, rank.Store) }
func (l *storeLock) Unlock() { rank.Unlock(&l.mu, rank.Store) }
