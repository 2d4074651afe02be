package tunnel

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// locks watches the locks of all tests: see TestMain.
var locks = ranktest.Watcher{Often: true}

// Every lock of the package is watched, by its place in the order of the package comment.
func TestLocksAreWatched(t *testing.T) {
	ranktest.SkipInRace(t)
	gate := new(recordGate)
	locks.Watches(t, map[rank.Rank]map[string]sync.Locker{
		rank.Endpoint:   {"Endpoint.mu": &new(Endpoint).mu},
		rank.TunnelPeer: {"peer.mu": &new(peer).mu},
		rank.Stream:     {"Stream.writing": &new(Stream).writing, "Stream.reading": &new(Stream).reading},
		rank.Session:    {"session.mu": &new(session).mu},
		rank.Gate:       {"recordGate.mu": &gate.mu},
		rank.Link:       {"datagramLink.mu": &new(datagramLink).mu},
		rank.Innermost: {
			"bufferedConn.mu":  &new(bufferedConn).mu,
			"chooser.mu":       &new(chooser).mu,
			"dtlsTransport.mu": &new(dtlsTransport).mu,
			"halfOpen.mu":      &new(halfOpen).mu,
			"identityStore.mu": &new(identityStore).mu,
			"intake.mu":        &new(intake).mu,
			"openings.mu":      &new(openings).mu,
			"opener.mu":        &new(opener).mu,
			"recordRoom.mu":    &new(recordRoom).mu,
			"sealer.mu":        &new(sealer).mu,
		},
	})
	var l innermostLock
	if !l.TryLock() || !locks.Held(rank.Innermost) {
		t.Error("a lock that was free is not taken, or not watched")
	}
	if l.TryLock() {
		t.Error("a lock that is held is taken")
	}
	if l.Unlock(); locks.Held(rank.Innermost) {
		t.Error("a lock is held after its release")
	}
}

// Over carriers of both kinds a site opens a stream, moves bytes and changes its peers: it takes locks in the order of
// the package comment.
func TestLockOrder(t *testing.T) {
	ranktest.SkipInRace(t)
	for _, carrier := range []string{CarrierTLS, CarrierDTLS} {
		paris, _ := pairOver(t, carrier, echo, nil)
		s, err := paris.Open(context.Background(), "tokyo", []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			s.Write(make([]byte, 1<<20))
			s.CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, s); n != 1<<20 || err != nil {
			t.Errorf("%d bytes came back: %v", n, err)
		}
		s.Close()
		if err := paris.SetPeers(paris.cfg.Peers); err != nil {
			t.Error(err)
		}
		if err := paris.SetPeers(nil); err != nil {
			t.Error(err)
		}
		paris.Close()
	}
	locks.Ordered(t, [][2]rank.Rank{
		{rank.Endpoint, rank.TunnelPeer}, {rank.Endpoint, rank.Session}, {rank.TunnelPeer, rank.Session}, {rank.Stream, rank.Session},
		{rank.Session, rank.Link}, {rank.Session, rank.Innermost}, {rank.Gate, rank.Link}, {rank.Gate, rank.Innermost}, {rank.Link, rank.Innermost},
	})
}
