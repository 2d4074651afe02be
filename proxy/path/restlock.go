package path

import (
	"sync"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// A restLock is a lock whose rank is rank.Rest.
type restLock struct{ mu sync.Mutex }

func (l *restLock) Lock()   { rank.Lock(&l.mu, rank.Rest) }
func (l *restLock) Unlock() { rank.Unlock(&l.mu, rank.Rest) }
