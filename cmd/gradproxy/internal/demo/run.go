package demo

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"net/netip"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/ddp"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Settings of the classifier's training.
const (
	ranks    = 2
	batch    = 32 // images on each rank
	rate     = 0.03
	momentum = 0.9
)

// A run is a Run under way, with its path and data.
type run struct {
	Options
	path  Path
	calls *[ranks]ddp.Calls  // of Gloo's ranks
	data  digits.Set         // to train on
	step  func(loss float64) // called by one rank after each step, with the loss of its batch
}

// model returns a rank's classifier. Each begins with weights of its own; the job makes them alike.
func (r *run) model(rank int) *train.MLP {
	widths := append([]int{digits.Pixels}, r.Model...)
	return train.New(r.Seed+uint64(rank), append(widths, digits.Classes)...)
}

// trained has the results of a job.
type trained struct {
	replicas []*train.MLP // by rank
	appBytes int64        // that the ranks have written
	seconds  float64      // from the first connection to the end of the last step
}

// finished is a Result and the hash of the weights of rank 0.
type finished struct {
	Result
	weights [sha256.Size]byte
}

// do trains once, across a link of its own.
func (o Options) do(ctx context.Context, r Run, show *screen) (f finished, err error) {
	wire, err := wansim.NewWire(o.Link.oneWay(0), o.Link.oneWay(1))
	if err != nil {
		return f, err
	}
	defer wire.Close()
	var calls [ranks]ddp.Calls
	if r.Wire == "gloo" {
		r.Far, r.Near = &calls[0], &calls[1]
	}
	path, err := o.open(ctx, r, wire)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, path.Close()) }()

	set, test := digits.Load()
	stop := show.begin(r, func() (there, back uint64) {
		s := wire.Stats()
		return s.AB.Bytes, s.BA.Bytes
	})
	t, err := job(r.Wire)(ctx, &run{o, path, &calls, set, func(loss float64) {
		show.step(loss)
		if o.After != nil {
			o.After()
		}
	}})
	stop()
	if err != nil {
		return f, err
	}
	stats := wire.Stats()
	f.Result = Result{
		Wire: r.Wire, Name: r.Name, Seconds: t.seconds, AppBytes: t.appBytes,
		WANBytes:          int64(stats.AB.Bytes + stats.BA.Bytes),
		ReplicasIdentical: true,
	}
	f.weights = sum(t.replicas[0].Params())
	for _, m := range t.replicas[1:] {
		f.ReplicasIdentical = f.ReplicasIdentical && sum(m.Params()) == f.weights
		f.ReplicaDistance = max(f.ReplicaDistance, distance(m.Params(), t.replicas[0].Params()))
	}
	f.FinalLoss, f.Accuracy = t.replicas[0].Evaluate(test.Images, test.Labels)
	if bad := f.FinalLoss + f.ReplicaDistance; math.IsNaN(bad) || math.IsInf(bad, 0) {
		return f, errors.New("the training has diverged, its weights are no numbers any more: choose a codec that loses less")
	}
	return f, nil
}

// open returns the run's path across the wire.
func (o Options) open(ctx context.Context, r Run, wire *wansim.Wire) (Path, error) {
	across := crossing{wire}
	if r.Name == Direct {
		return across, nil
	}
	if o.Through == nil {
		return nil, errors.New("no proxies to run through")
	}
	return o.Through(ctx, r, across.Forward)
}

// crossing is the direct path: a relay on the wire.
type crossing struct{ wire *wansim.Wire }

func (c crossing) Forward(target netip.AddrPort) (netip.AddrPort, error) {
	return relayed(c.wire, target)
}

func (c crossing) Backward(target netip.AddrPort) (netip.AddrPort, error) {
	return relayed(c.wire.Reverse(), target)
}

// relayed returns an address at a wire's first place that leads to target at its second.
func relayed(w *wansim.Wire, target netip.AddrPort) (netip.AddrPort, error) {
	r, err := w.Relay("127.0.0.1:0", target.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.ParseAddrPort(r.Addr().String())
}

// Close leaves the wire open: its maker closes it.
func (crossing) Close() error { return nil }

// oneWay returns one of the link's two directions.
func (l Link) oneWay(direction uint64) wansim.Link {
	one := wansim.Link{Rate: l.Rate / 8, Delay: l.RTT / 2, Loss: l.Loss, Seed: direction}
	if one.Rate > 0 {
		one.Queue = wansim.DefaultQueue(one.Rate, l.RTT)
	}
	return one
}
