package udp

import (
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// locks watches the locks of all tests: they fail together if one was taken out of order.
var locks = ranktest.Watcher{Often: true}

func TestMain(m *testing.M) { ranktest.MainUnlessRace(m, &locks) }

// Every lock of the package is watched, by its place in the order of the package comment.
func TestLocksAreWatched(t *testing.T) {
	ranktest.SkipInRace(t)
	locks.Watches(t, map[rank.Rank]map[string]sync.Locker{
		rank.Moving:    {"moving.mu": &new(moving).mu},
		rank.Listener:  {"Listener.mu": &new(Listener).mu},
		rank.Way:       {"way.mu": &new(way).mu},
		rank.Innermost: {"deadline.mu": &new(deadline).mu},
	})
}

// A connection is dialed, used, moved by its client and closed: it takes locks in the order of the package comment.
func TestLockOrder(t *testing.T) {
	ranktest.SkipInRace(t)
	l := listen(t)
	client, server := movers(t, l)
	server.SetReadDeadline(time.Now().Add(time.Minute))
	time.Sleep(goneAfter)
	client.Doubt()
	client.moved(t)
	brings(t, client, server, "hello")
	server.moved(t)
	client.Close()
	server.Close()
	l.Close()
	locks.Ordered(t, [][2]rank.Rank{{rank.Moving, rank.Way}})
}
