package relay

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

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
		rank.Relay: {"Relay.mu": &new(Relay).mu},
		rank.Loop:  {"loop.mu": &new(loop).mu},
	})
}

// A pair is added, ends by itself or is reset by Close: that takes locks in the order of the package comment, and the
// callback is called without one.
func TestLockOrder(t *testing.T) {
	ranktest.SkipInRace(t)
	held := make(chan bool, 2)
	var moved, wrongly atomic.Int32 // calls of Moved, and the ones under a lock
	r, err := New(Config{Threads: 2, Moved: func(int) {
		moved.Add(1)
		if locks.Held(rank.Relay) || locks.Held(rank.Loop) {
			wrongly.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	add := func() (client, server *net.TCPConn) {
		client, a := tcpPair(t)
		b, server := tcpPair(t)
		if err := r.Add(a, b, func(Ending) { held <- locks.Held(rank.Relay) || locks.Held(rank.Loop) }); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	client, server := add()
	if _, err := client.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	client.Close()
	server.Close()
	ended := <-held
	add()
	r.Close()
	if ended || <-held {
		t.Error("the callback of Add is called under a lock")
	}
	if moved.Load() == 0 || wrongly.Load() > 0 {
		t.Errorf("Moved is called %d times, of them %d under a lock", moved.Load(), wrongly.Load())
	}
	locks.Ordered(t, [][2]rank.Rank{{rank.Relay, rank.Loop}})
}
