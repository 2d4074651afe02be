package app

import (
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// locks watches the locks of all tests: they fail together if one was taken out of order.
var locks = ranktest.Watcher{Often: true}

func TestMain(m *testing.M) { ranktest.MainUnlessRace(m, &locks) }

// The lock of the Sleepers is watched.
func TestLocksAreWatched(t *testing.T) {
	ranktest.SkipInRace(t)
	locks.Watches(t, map[rank.Rank]map[string]sync.Locker{rank.Sleepers: {"Sleepers.mu": &new(Sleepers).mu}})
}
