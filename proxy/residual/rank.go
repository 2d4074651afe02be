package residual

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// A lock is a lock whose rank is rank.Residual.
type lock struct{ mu sync.Mutex }

func (l *lock) Lock()   { rank.Lock(&l.mu, rank.Residual) }
func (l *lock) Unlock() { rank.Unlock(&l.mu, rank.Residual) }
