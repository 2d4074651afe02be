package paramserver

import (
	"fmt"
	"math"
	"testing"
)

// Gradients are added in the order of ranks, however they arrive: (2^25 + 1) - 2^25 is 0 in float32, and in other
// orders 1.
func TestSumsDoNotDependOnArrival(t *testing.T) {
	gradients := [][]float32{{1 << 25}, {1}, {-1 << 25}}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var config Config
		config.Workers = 3
		arrived := [4]chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
		close(arrived[0])
		newJob(t, config).mustWork(t, func(w *Worker) error {
			const summed, other = 0, 1
			for _, key := range []int{summed, other} {
				if err := w.Init(key, []float32{0}); err != nil {
					return err
				}
			}
			place := 0
			for order[place] != w.Rank() {
				place++
			}
			select {
			case <-arrived[place]:
			case <-w.node.Done():
				return w.node.Err()
			}
			got := []float32{-1}
			sum := w.PushPull(summed, gradients[w.Rank()], got)
			// The answer to a later request of the same connection: the push has arrived.
			if err := w.Pull(other, []float32{-1}).Wait(); err != nil {
				return err
			}
			close(arrived[place+1])
			if err := sum.Wait(); err != nil {
				return err
			}
			if math.Float32bits(got[0]) != 0 {
				return fmt.Errorf("order %v: sum %v, want 0", order, got[0])
			}
			return nil
		})
	}
}
