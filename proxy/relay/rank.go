package relay

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// The locks are types, so that each says its rank. The package comment has the order.
type (
	relayLock struct{ mu sync.Mutex }
	loopLock  struct{ mu sync.Mutex }
)

func (l *relayLock) Lock()   { rank.Lock(&l.mu, rank.Relay) }
func (l *relayLock) Unlock() { rank.Unlock(&l.mu, rank.Relay) }

func (l *loopLock) Lock()   { rank.Lock(&l.mu, rank.Loop) }
func (l *loopLock) Unlock() { rank.Unlock(&l.mu, rank.Loop) }
