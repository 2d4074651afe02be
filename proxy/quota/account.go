package quota

import (
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/allowance"
	"github.com/gradproxy/gradproxy/proxy/internal/wait"
)

// An account is an allowance of one peer, used by several goroutines.
type account struct {
	mu        sync.Mutex
	allowance allowance.Allowance
}

// await takes n units and waits until they have come, or gone is closed; then it returns false.
func (a *account) await(n int, gone <-chan struct{}) bool {
	a.mu.Lock()
	late := a.allowance.Take(float64(n), time.Now())
	a.mu.Unlock()
	return late == 0 || wait.Unless(gone, late)
}

// spend takes n units, some of which may be still to come, unless such units were taken before; then it takes none and
// returns false.
func (a *account) spend(n float64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.allowance.Wait(0, now) > 0 {
		return false
	}
	a.allowance.Take(n, now)
	return true
}

func (a *account) giveBack(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowance.GiveBack(float64(n))
}
