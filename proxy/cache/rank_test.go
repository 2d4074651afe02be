package cache

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

var locks = ranktest.Watcher{Often: true}

// All tests of this package run with their locks watched, and fail together if one was taken out of order.
func TestMain(m *testing.M) { ranktest.Main(m, &locks) }

// Both sides put, deliver, evict and code against each other's values at once: every lock is taken in the order
// of doc.go, and each value arrives as it was put.
func TestLockOrder(t *testing.T) {
	a, b := newSides(t, 64<<10)
	var all sync.WaitGroup
	for way, ends := range [][2]*side{{a, b}, {b, a}} {
		for worker := range uint64(3) {
			here, there := frame.Tag{Number: 10 + worker, Mine: way == 0}, frame.Tag{Number: 10 + worker, Mine: way == 1}
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(way), worker))
				for range 200 {
					w := weights(rand.New(rand.NewPCG(5, r.Uint64N(20))), 500) // both sides have the same
					w[r.IntN(len(w))]++
					ref, ok := ends[0].putOn(here, 1+r.Uint64N(40), w)
					if !ok {
						continue
					}
					if got, err := ends[1].takeOn(there, ref); err != nil || !bytes.Equal(got, w) {
						t.Errorf("other bytes arrived: %v; the logs:\n%s\nand:\n%s", err, &a.log, &b.log)
						return
					}
				}
			})
		}
	}
	all.Wait()
	a.peer.Ended(a.tag)
	b.peer.Ended(b.tag)
	locks.Ordered(t, [][2]rank.Rank{{rank.Submit, rank.Peer}, {rank.Peer, rank.Store}, {rank.Submit, rank.Store}})
}
