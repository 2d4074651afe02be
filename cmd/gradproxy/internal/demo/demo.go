// Package demo shows on one machine, with nothing to configure, the effect of gradproxy on a training job across a WAN.
// It trains the same small classifier several times with two workers in one process, whose connections cross an
// emulated link: directly, and through two proxies. Then it compares seconds, bytes, loss, accuracy, and the weights,
// bit by bit, and says whether gradproxy's promise for each run is true.
//
// The jobs know nothing of proxies: gloosim speaks the wire of torch.distributed, ddp uses it as PyTorch's
// DistributedDataParallel does, pslitesim speaks ps-lite, paramserver is MXNet's kvstore on it, tensorflowsim speaks
// TensorFlow's gRPC, flowersim Flower, nvflaresim NVFlare, and train computes, on the images of package digits.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Options choose the runs. The zero Options is the default runs on a perfect link.
type Options struct {
	Link  Link
	Wires []string // protocols of the job; nil: DefaultWires
	Codes []string // codecs of the proxies in the runs after the direct one: "lossless", "CODEC" or "CODEC+CODEC"; nil: DefaultCodes
	All   bool     // AllCodes instead of DefaultCodes
	Steps int      // of training, on the wires of flower and nvflare rounded up to whole rounds; 0: DefaultSteps
	Seed  uint64   // of weights and batches
	Model []int    // widths of the classifier's hidden layers; nil: 256 and 256, 85,002 parameters in all
	After func()   // called by one rank after each step of training, and the job goes on when it returns; nil: nothing

	// Through starts two proxies for a run, one at each site. between leads from an
	// address at the far site to one at the near site, across the link. Not needed if Codes is empty, but not nil.
	Through func(ctx context.Context, r Run, between Between) (Path, error)
}

// DefaultSteps is how many steps of training let the first two, in which the proxies learn the tensors' roles and
// everything travels exactly, weigh little: with the default model the four runs on Gloo's wire take 63 s at 50 Mbit/s
// and 60 ms, where a step costs two round trips and more however few bytes it sends.
const DefaultSteps = 90

// A Link is the emulated link between the two sites, alike in both directions.
type Link struct {
	Rate int64         // bits per second, headers from IP upwards included; 0: unlimited
	RTT  time.Duration // of a packet that does not queue
	Loss float64       // probability that a packet is lost, in [0, 1)
}

// maxRTT is that of any link on Earth many times over; a run takes hundreds of round trips.
const maxRTT = 10 * time.Second

// Between returns an address at the near site that leads, across the link, to target at the far site.
type Between func(target netip.AddrPort) (netip.AddrPort, error)

// A Path leads the connections of one run from one site to the other.
type Path interface {
	// Forward returns an address at the near site that leads to target at the far one.
	Forward(target netip.AddrPort) (netip.AddrPort, error)
	// Backward returns an address at the far site that leads to target at the near one.
	Backward(target netip.AddrPort) (netip.AddrPort, error)
	Close() error
}

// A Report has the results of a demo. The JSON names are stable.
type Report struct {
	Runs []Result   `json:"runs"`
	Link LinkReport `json:"link"`
}

// LinkReport describes the emulated link.
type LinkReport struct {
	RateBPS int64   `json:"rate_bps"` // bits per second; 0: unlimited
	RTTMS   float64 `json:"rtt_ms"`
}

// A Result has the cost of one run and the quality of its model.
type Result struct {
	Wire              string  `json:"wire"`
	Name              string  `json:"name"`
	Seconds           float64 `json:"seconds"`            // from the first connection to the end of the last step
	AppBytes          int64   `json:"app_bytes"`          // that the ranks have written
	WANBytes          int64   `json:"wan_bytes"`          // on the link, both directions, headers included
	Ratio             float64 `json:"ratio"`              // WANBytes of the direct run on the same wire over this run's
	FinalLoss         float64 `json:"final_loss"`         // of images that were not trained on
	Accuracy          float64 `json:"accuracy"`           // of the same
	ReplicasIdentical bool    `json:"replicas_identical"` // all ranks end with the same bits
	ReplicaDistance   float64 `json:"replica_distance"`   // norm of the difference of their weights over the norm of the weights
	SameAsDirect      bool    `json:"same_as_direct"`     // the weights have the bits of the direct run's
}

func (o Options) withDefaults() Options {
	if o.Wires == nil {
		o.Wires = DefaultWires()
	}
	if o.Model == nil {
		o.Model = []int{256, 256}
	}
	o.Steps = cmp.Or(o.Steps, DefaultSteps)
	return o
}

// Validate reports the mistakes in o, one line for each.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Link.Rate < 0 {
		errs = append(errs, fmt.Errorf("rate of %d bit/s: want 0 (unlimited) or more", o.Link.Rate))
	}
	if o.Link.RTT < 0 || o.Link.RTT > maxRTT {
		errs = append(errs, fmt.Errorf("round-trip time of %v: want 0 to %v", o.Link.RTT, maxRTT))
	}
	if !(o.Link.Loss >= 0 && o.Link.Loss < 1) {
		errs = append(errs, fmt.Errorf("loss of %v: want a probability of at least 0 and less than 1", o.Link.Loss))
	}
	if o.Steps < 2 {
		errs = append(errs, fmt.Errorf("%d steps: want at least 2", o.Steps))
	}
	errs = append(errs, o.checkRuns())
	return errors.Join(errs...)
}

// Do runs o, tells its progress on out, live if that is a terminal, and returns the results, of the runs before it if
// one fails. If all runs are done, but one has not ended as it must, the error wraps ErrBroken.
func Do(ctx context.Context, o Options, out io.Writer) (Report, error) {
	o = o.withDefaults()
	report := Report{Link: LinkReport{RateBPS: o.Link.Rate, RTTMS: float64(o.Link.RTT) / float64(time.Millisecond)}}
	if err := o.Validate(); err != nil {
		return report, err
	}
	runs := o.runs()
	show := newScreen(out, o, runs)
	var direct finished
	var broken []error
	for _, r := range runs {
		f, err := o.do(ctx, r, show)
		if err != nil {
			if ctx.Err() == nil {
				show.end()
			}
			return report, fmt.Errorf("%s, %s: %w", r.Wire, r.Name, err)
		}
		if r.Name == Direct {
			direct = f
		}
		f.SameAsDirect = f.ReplicasIdentical && f.weights == direct.weights
		if f.WANBytes > 0 {
			f.Ratio = float64(direct.WANBytes) / float64(f.WANBytes)
		}
		report.Runs = append(report.Runs, f.Result)
		broken = append(broken, r.kept(f.Result))
		show.done(f.Result)
	}
	show.end()
	return report, errors.Join(broken...)
}
