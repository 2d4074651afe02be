package proxy

import (
	"context"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/attacktest"
	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

var locks = ranktest.Watcher{Often: true}

// All tests of this package run with their ranked locks watched, and fail together if one was taken out of order.
func TestMain(m *testing.M) {
	attacktest.Main(attacks())
	ranktest.Main(m, &locks)
}

// A connection that bypasses the tunnel and one that comes to rest take their locks in the order that package rank
// gives.
func TestLockOrder(t *testing.T) {
	near, far := movingSites(t)
	target, entry := listen(t), listen(t)
	x := talkBetween(t, near, target, entry, 1)
	for _, s := range []*movingSite{near, far} {
		s.replace()
		await(t, near)
		await(t, far)
	}
	x.end(t)
	if _, err := near.now.beginBypass(); err != nil {
		t.Fatal(err)
	}
	near.now.live.LeaveBypass()
	near.now.Drain(context.Background())
	pairs := [][2]rank.Rank{{rank.Bypass, rank.Table}, {rank.Table, rank.Rest}}
	if runtime.GOOS == "linux" { // connections sleep there only
		pairs = append(pairs, [2]rank.Rank{rank.Rest, rank.Sleepers})
	}
	locks.Ordered(t, pairs)
}
