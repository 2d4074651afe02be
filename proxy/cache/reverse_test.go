package cache

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
)

// The peer may evict the slot of a value at any moment of a put that would be coded against that value. No difference
// to it follows the word that the slot is gone here too, which would end the stream.
func TestSlotIsEvictedDuringAPut(t *testing.T) {
	reverse, moments := 0, 0
	for evicted := true; evicted; moments++ {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSides(t, 1<<20)
			r := rand.New(rand.NewPCG(3, 4))
			w := weights(r, 1000)
			send := func(from, to *side) {
				t.Helper()
				w[r.IntN(len(w))]++
				ref, ok := from.put(1, w)
				if locks.OnRelease(nil); !ok {
					t.Fatal("the value was not put")
				}
				if got, err := to.take(ref); err != nil || !bytes.Equal(got, w) {
					t.Fatalf("moment %d: other bytes arrived: %v; the log:\n%s", moments, err, &to.log)
				}
				synctest.Wait()
			}
			send(a, b)
			send(b, a) // and b has a keep earlier values of its slot
			send(a, b)
			left := moments
			evicted = false
			locks.OnRelease(func(r rank.Rank) {
				if r != rank.Peer {
					return
				}
				if left--; left == -1 {
					evicted = true
					a.peer.mu.Lock()
					a.peer.writer.makeRoom(a.peer.writer.room, nil)
					a.peer.mu.Unlock()
					synctest.Wait() // until b's store has let the slot go
				}
			})
			send(b, a)
			reverse += b.metrics.how["reverse"]
			send(b, a)
			if n := a.log.count("level=ERROR") + b.log.count("level=ERROR"); n > 0 {
				t.Errorf("moment %d: the logs:\n%s\nand:\n%s", moments, &a.log, &b.log)
			}
		})
	}
	if t.Logf("%d moments, in %d of which the value is a difference to one of the peer", moments, reverse); reverse < 2 || reverse == moments {
		t.Errorf("the slot is not evicted both before and after the choice")
	}
}
