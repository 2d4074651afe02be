package paramserver

import (
	"cmp"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
)

// A Training is every worker's work after it has joined the job.
type Training struct {
	Model      *train.MLP // begins with worker 0's weights, and ends with the servers'
	Optimizer  SGD        // Rescale 0: 1 over the number of workers, so that gradients are averaged
	SplitCalls bool       // see NewReplica
	Steps      int

	// Next returns the worker's next batch: images, one after another, and their labels.
	Next func() (images []float32, labels []uint8)

	// Report is called after each step; nil: nobody asks. It may call Reconnect. An error ends the training.
	Report func(Step) error
}

// A Step is one step of a training, as a worker sees it.
type Step struct {
	Number         int     // from 0
	Loss           float64 // of the worker's batch
	Sent, Received int64   // bytes so far, on the connections that Config.Traffic counts
}

// Train trains, together with the other workers. It leaves them connected.
func (w *Worker) Train(t Training) error {
	t.Optimizer.Rescale = cmp.Or(t.Optimizer.Rescale, 1/float32(w.Workers()))
	replica, err := NewReplica(w, t.Model.Params(), t.Optimizer, t.SplitCalls)
	if err != nil {
		return err
	}
	for i := range t.Steps {
		images, labels := t.Next()
		loss := t.Model.Step(images, labels, replica.Ready)
		if err := replica.Finish(); err != nil {
			return err
		}
		if t.Report == nil {
			continue
		}
		step := Step{Number: i, Loss: loss, Sent: w.Traffic.Sent.Load(), Received: w.Traffic.Received.Load()}
		if err := t.Report(step); err != nil {
			return err
		}
	}
	return nil
}
