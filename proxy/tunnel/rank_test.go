package tunnel

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// locks watches the locks of all tests: see TestMain.
var locks = ranktest.Watcher{Often: true}

// Every lock of the package is watched, by its place in the order of the package comment.
func TestLocksAreWatched(t *testing.T) {
	if require.Race {
		t.Skip("locks are not watched with the race detector")
	}
	gate := new(recordGate)
	for name, l := range map[string]struct {
		sync.Locker
		rank rank.Rank
	}{
		"Endpoint.mu":      {&new(Endpoint).mu, rank.Endpoint},
		"peer.mu":          {&new(peer).mu, rank.TunnelPeer},
		"Stream.writing":   {&new(Stream).writing, rank.Stream},
		"Stream.reading":   {&new(Stream).reading, rank.Stream},
		"session.mu":       {&new(session).mu, rank.Session},
		"recordGate.mu":    {&gate.mu, rank.Gate},
		"datagramLink.mu":  {&new(datagramLink).mu, rank.Link},
		"bufferedConn.mu":  {&new(bufferedConn).mu, rank.Innermost},
		"chooser.mu":       {&new(chooser).mu, rank.Innermost},
		"dtlsTransport.mu": {&new(dtlsTransport).mu, rank.Innermost},
		"halfOpen.mu":      {&new(halfOpen).mu, rank.Innermost},
		"identityStore.mu": {&new(identityStore).mu, rank.Innermost},
		"openings.mu":      {&new(openings).mu, rank.Innermost},
		"opener.mu":        {&new(opener).mu, rank.Innermost},
		"recordRoom.mu":    {&new(recordRoom).mu, rank.Innermost},
		"sealer.mu":        {&new(sealer).mu, rank.Innermost},
	} {
		if l.Lock(); !locks.Held(l.rank) {
			t.Errorf("%s is not watched as a lock of rank %d", name, l.rank)
		}
		if l.Unlock(); locks.Held(l.rank) {
			t.Errorf("%s is held after its release", name)
		}
	}
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

// Over carriers of both kinds a site opens a stream, moves bytes and changes its peers: it takes locks in the order of the package comment.
func TestLockOrder(t *testing.T) {
	if require.Race {
		t.Skip("locks are not watched with the race detector")
	}
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
	if wrong := locks.Wrong(); wrong != "" {
		t.Error(wrong)
	}
	for _, pair := range [][2]rank.Rank{
		{rank.Endpoint, rank.TunnelPeer}, {rank.Endpoint, rank.Session}, {rank.TunnelPeer, rank.Session}, {rank.Stream, rank.Session},
		{rank.Session, rank.Link}, {rank.Session, rank.Innermost}, {rank.Gate, rank.Link}, {rank.Gate, rank.Innermost}, {rank.Link, rank.Innermost},
	} {
		if !locks.Saw(pair[0], pair[1]) {
			t.Errorf("no lock of rank %d was taken under one of rank %d: the test shows nothing of them", pair[1], pair[0])
		}
	}
}
