package residual

import (
	"io"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/rank"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/tensor"
)

var locks = ranktest.Watcher{Often: true}

// All tests of this package run with their locks watched, and fail together if one was taken under another.
func TestMain(m *testing.M) { ranktest.Main(m, &locks) }

// Every lock of the package is watched, and none is taken under another while senders, a Save and a store that is too
// small use dense and sparse tensors at once.
func TestLocksAreTakenAlone(t *testing.T) {
	s := New(3*denseCost(tensor.Float32, 4000), Events{})
	d := newDense(&s.ledger, denseKey{"job", 99}, tensor.Float32, 4000, true)
	sums := new(Sums)
	locks.Watches(t, map[rank.Rank]map[string]sync.Locker{rank.Residual: {"ledger.mu": &s.mu, "Dense.mu": d, "Sums.mu": &sums.mu}})
	var all sync.WaitGroup
	for worker := range uint64(4) {
		all.Go(func() {
			block := make([]byte, 4000)
			for i := range uint64(50) {
				x := tensor.Tensor{Key: 1 + (worker+i)%5, Keys: 8, DType: tensor.Float32, Size: 4000, Origin: worker % 2}
				if d := s.Dense("job", x, worker < 2); d != nil {
					d.Begin(2)
					d.Check(0, block, true, new(tensor.Placement))
					d.Flush(block, d.Part(0, 4000))
					s.End(d)
				}
				if m := s.Rows("job", x, 10, true); m != nil {
					m.Begin(2, 0)
					m.Check(block)
				}
			}
		})
	}
	if err := s.Save(io.Discard); err != nil {
		t.Error(err)
	}
	all.Wait()
	locks.Ordered(t, nil)
}
