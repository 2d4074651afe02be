package paramserver

import (
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
)

// The workers here make the same calls as in recorded jobs of MXNet 1.9.1, with the same initial values and gradients:
// every connection greets alike, and every message that any node says to any other is the same, with all its fields and
// all its values. So the weights that the servers compute (momentum SGD) are MXNet's bit for bit.
func TestSameMessagesAsMXNet(t *testing.T) {
	for _, c := range []struct {
		name             string
		servers, workers int
		bigArray         int
	}{
		{"pslite-mxnet-sync", 2, 2, 1000},
		{"pslite-mxnet-local", 1, 2, 0}, // without an optimizer on the server: sums come back
	} {
		t.Run(c.name, func(t *testing.T) {
			want := listenTo(t, recorded.Open(t, c.name))
			var config Config
			config.Workers, config.Servers, config.BigArray = c.workers, c.servers, c.bigArray
			kept := new(taps)
			config.Dial = kept.dial
			pushes := make([]map[int][][]float32, c.workers)
			for rank := range pushes {
				pushes[rank] = want.pushes(pslitesim.WorkerID(rank), c.servers)
			}
			initial := make([][]float32, len(pushes[0]))
			for key := range initial {
				initial[key], pushes[0][key] = pushes[0][key][0], pushes[0][key][1:]
			}
			optimizer := want.optimizer(t)
			extra := want.barriers() - len(initial) - 1 // the script's
			newJob(t, config).mustWork(t, func(w *Worker) error {
				return repeat(w, optimizer, initial, pushes[w.Rank()], extra)
			})
			compare(t, listenTo(t, kept.all), want, c.workers)
		})
	}
}

// repeat makes a recorded worker's calls.
func repeat(w *Worker, optimizer []byte, initial [][]float32, pushes map[int][][]float32, barriers int) error {
	if optimizer != nil {
		o, err := unpickle(optimizer)
		if err != nil {
			return err
		}
		if err := w.SetOptimizer(o); err != nil {
			return err
		}
	}
	var out [][]float32
	for key, value := range initial {
		out = append(out, make([]float32, len(value)))
		if err := w.Init(key, value); err != nil {
			return err
		}
		if err := w.Pull(key, out[key]).Wait(); err != nil {
			return err
		}
	}
	for step := range pushes[0] {
		var all []*Request
		for key := range initial {
			all = append(all, w.PushPull(key, pushes[key][step], out[key]))
		}
		for _, r := range all {
			if err := r.Wait(); err != nil {
				return err
			}
		}
	}
	for range barriers {
		if err := w.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

// compare reports where two conversations differ.
func compare(t *testing.T, got, want conversation, workers int) {
	t.Helper()
	if !slices.Equal(got.connections, want.connections) {
		t.Errorf("connections\n%q, want\n%q", got.connections, want.connections)
	}
	for rank := range workers {
		id := pslitesim.WorkerID(rank)
		if !slices.Equal(got.timestamps(id), want.timestamps(id)) {
			t.Errorf("worker %d: timestamps %v, want %v", rank, got.timestamps(id), want.timestamps(id))
		}
	}
	ours, theirs := got.topics(), want.topics()
	for topic, texts := range theirs {
		if !slices.Equal(ours[topic], texts) {
			t.Errorf("%s:\n%q, want\n%q", topic, ours[topic], texts)
		}
	}
	for topic, texts := range ours {
		if theirs[topic] == nil {
			t.Errorf("%s: MXNet says nothing, here it is\n%q", topic, texts)
		}
	}
	t.Logf("%d connections, %d messages, %d topics", len(want.connections), len(want.sayings), len(theirs))
}
