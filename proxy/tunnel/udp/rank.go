package udp

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// The locks are types, so that each says its rank. The package comment has the order.
type (
	movingLock   struct{ mu sync.Mutex }
	listenerLock struct{ mu sync.Mutex }
	wayLock      struct{ mu sync.Mutex }
	deadlineLock struct{ mu sync.Mutex }
)

func (l *movingLock) Lock()   { rank.Lock(&l.mu, rank.Moving) }
func (l *movingLock) Unlock() { rank.Unlock(&l.mu, rank.Moving) }

func (l *listenerLock) Lock()   { rank.Lock(&l.mu, rank.Listener) }
func (l *listenerLock) Unlock() { rank.Unlock(&l.mu, rank.Listener) }

func (l *wayLock) Lock()   { rank.Lock(&l.mu, rank.Way) }
func (l *wayLock) Unlock() { rank.Unlock(&l.mu, rank.Way) }

func (l *deadlineLock) Lock()   { rank.Lock(&l.mu, rank.Innermost) }
func (l *deadlineLock) Unlock() { rank.Unlock(&l.mu, rank.Innermost) }
