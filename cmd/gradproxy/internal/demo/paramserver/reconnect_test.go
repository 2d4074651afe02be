package paramserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

// Workers that lose their connections to the servers between steps, in both directions, end with the same weights. The
// new connections have the identities of the old.
func TestReconnect(t *testing.T) {
	set, _ := digits.Load()
	const workers, rate, momentum = 2, 0.1, 0.9
	want := reference(set, workers, testSteps, rate, momentum)
	var config Config
	config.Workers, config.Servers, config.BigArray = workers, 2, 1000
	kept := new(taps)
	config.Dial = kept.dial
	again := map[int][]int{0: {1, 2, 4}, 1: {0, 2}} // by rank: after which steps
	j := newJob(t, config)
	j.mustWork(t, func(w *Worker) error {
		model := testModel(w.Rank())
		err := w.Train(Training{
			Model: model, Optimizer: SGD{Rate: rate, Momentum: momentum}, Steps: testSteps, Next: dealer(set, w.Rank(), workers),
			Report: func(s Step) error {
				if slices.Contains(again[w.Rank()], s.Number) {
					return w.Reconnect(j.ctx)
				}
				return nil
			},
		})
		if err == nil {
			err = sameBits(model, want)
		}
		return err
	})
	count := make(map[string]int)
	for _, text := range listenTo(t, kept.all).connections {
		count[text]++
	}
	for ends, want := range map[string]int{
		"Identity:ps9 Minor:0} to 8,":  4,
		"Identity:ps9 Minor:0} to 10,": 4,
		"Identity:ps8 Minor:0} to 9,":  4,
		"Identity:ps10 Minor:0} to 9,": 4,
		"Identity:ps11 Minor:0} to 8,": 3,
		"Identity:ps8 Minor:0} to 11,": 3,
		"Identity:ps9 Minor:0} to 1,":  4,
	} {
		got := 0
		for text, n := range count {
			if strings.Contains(text, ends) {
				got += n
			}
		}
		if got != want {
			t.Errorf("%d connections %q, want %d", got, ends, want)
		}
	}
}

// Requests under way would be lost.
func TestReconnectWithARequestUnderWay(t *testing.T) {
	newJob(t, Config{}).mustWork(t, func(w *Worker) error {
		if err := w.Init(0, []float32{0}); err != nil {
			return err
		}
		if w.Rank() == 0 {
			push := w.Push(0, []float32{1})
			if err := w.Reconnect(t.Context()); err == nil || !strings.Contains(err.Error(), "answer is due") {
				t.Errorf("got %v", err)
			}
			if err := w.Barrier(); err != nil {
				return err
			}
			return push.Wait()
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		return w.Push(0, []float32{1}).Wait()
	})
}
