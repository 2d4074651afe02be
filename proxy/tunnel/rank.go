package tunnel

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// The locks are types, so that each says its rank. The package comment has the order.
type (
	endpointLock  struct{ mu sync.Mutex }
	peerLock      struct{ mu sync.Mutex }
	streamLock    struct{ mu sync.Mutex }
	sessionLock   struct{ mu sync.Mutex }
	gateLock      struct{ mu sync.Mutex }
	linkLock      struct{ mu sync.Mutex }
	innermostLock struct{ mu sync.Mutex }
)

func (l *endpointLock) Lock()   { rank.Lock(&l.mu, rank.Endpoint) }
func (l *endpointLock) Unlock() { rank.Unlock(&l.mu, rank.Endpoint) }

func (l *peerLock) Lock()   { rank.Lock(&l.mu, rank.TunnelPeer) }
func (l *peerLock) Unlock() { rank.Unlock(&l.mu, rank.TunnelPeer) }

func (l *streamLock) Lock()   { rank.Lock(&l.mu, rank.Stream) }
func (l *streamLock) Unlock() { rank.Unlock(&l.mu, rank.Stream) }

func (l *sessionLock) Lock()   { rank.Lock(&l.mu, rank.Session) }
func (l *sessionLock) Unlock() { rank.Unlock(&l.mu, rank.Session) }

func (l *gateLock) Lock()   { rank.Lock(&l.mu, rank.Gate) }
func (l *gateLock) Unlock() { rank.Unlock(&l.mu, rank.Gate) }

func (l *linkLock) Lock()   { rank.Lock(&l.mu, rank.Link) }
func (l *linkLock) Unlock() { rank.Unlock(&l.mu, rank.Link) }

func (l *innermostLock) Lock()   { rank.Lock(&l.mu, rank.Innermost) }
func (l *innermostLock) Unlock() { rank.Unlock(&l.mu, rank.Innermost) }

func (l *innermostLock) TryLock() bool { return rank.TryLock(&l.mu, rank.Innermost) }
