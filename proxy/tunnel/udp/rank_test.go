package udp

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// locks watches the locks of all tests: they fail together if one was taken out of order.
var locks = ranktest.Watcher{Often: true}

func TestMain(m *testing.M) {
	if require.Race { // a watched lock orders goroutines that share no lock, and so hides races
		os.Exit(m.Run())
	}
	ranktest.Main(m, &locks)
}

// Every lock of the package is watched, by its place in the order of the package comment.
func TestLocksAreWatched(t *testing.T) {
	if require.Race {
		t.Skip("locks are not watched with the race detector")
	}
	for name, l := range map[string]struct {
		sync.Locker
		rank rank.Rank
	}{
		"moving.mu":   {&new(moving).mu, rank.Moving},
		"Listener.mu": {&new(Listener).mu, rank.Listener},
		"way.mu":      {&new(way).mu, rank.Way},
		"deadline.mu": {&new(deadline).mu, rank.Innermost},
	} {
		if l.Lock(); !locks.Held(l.rank) {
			t.Errorf("%s is not watched as a lock of rank %d", name, l.rank)
		}
		if l.Unlock(); locks.Held(l.rank) {
			t.Errorf("%s is held after its release", name)
		}
	}
}

// A connection is dialed, used, moved by its client and closed: it takes locks in the order of the package comment.
func TestLockOrder(t *testing.T) {
	if require.Race {
		t.Skip("locks are not watched with the race detector")
	}
	l := listen(t)
	client, server, moves := movers(t, l)
	server.SetReadDeadline(time.Now().Add(time.Minute))
	end := time.Now().Add(time.Minute)
	for told := 0; told < 2; { // both ends tell of the move
		if time.Now().After(end) {
			t.Fatalf("%d of both ends have told of the move", told)
		}
		client.Doubt()
		select {
		case <-moves:
			told++
		case <-time.After(moveEvery):
		}
	}
	brings(t, client, server, "hello", func() {})
	client.Close()
	server.Close()
	l.Close()
	if wrong := locks.Wrong(); wrong != "" {
		t.Error(wrong)
	}
	for _, pair := range [][2]rank.Rank{{rank.Moving, rank.Listener}, {rank.Moving, rank.Way}} {
		if !locks.Saw(pair[0], pair[1]) {
			t.Errorf("no lock of rank %d was taken under one of rank %d: the test shows nothing of them", pair[1], pair[0])
		}
	}
}
