package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A Run is one training from beginning to end: its wire, and the codecs of the proxies.
type Run struct {
	Wire       string // protocol of the job
	Name       string // Direct, Lossless or codecs
	Gradients  string // codec of the tensors that may lose something; "": none
	Aggregates string // codec of sums that all replicas should receive alike; "": lossless
	State      string // codec of the differences to the weights that the workers hold; "": lossless
	NoFeedback bool   // without error feedback for Gradients

	// Near and Far tell which collectives Gloo's ranks at the two sites call; nil before the run begins.
	Near, Far parser.Calls
}

// Names of runs that are not codecs.
const (
	Direct   = "direct"   // without proxies
	Lossless = "lossless" // all bytes arrive as they were sent
)

// job returns how a job trains on a wire, or nil if there is no such wire.
func job(wire string) func(context.Context, *run) (trained, error) {
	switch wire {
	case "gloo":
		return gloo
	case "pslite":
		return parameterServer
	case "tensorflow":
		return synchronized
	case "flower":
		return federated
	case "nvflare":
		return differences
	}
	return nil
}

// Wires are all that there are.
func Wires() []string { return append(DefaultWires(), "tensorflow", "flower", "nvflare") }

// Federated reports whether a wire is that of federated learning: hospitals behind one uplink.
func Federated(wire string) bool { return wire == "flower" || wire == "nvflare" }

// DefaultWires are the wires of a demo that names none.
func DefaultWires() []string { return []string{"gloo", "pslite"} }

// Codes of the default runs, with the codec that docs/loss.md recommends to begin with.
const (
	summands = "int4"      // loss only where replicas stay alike
	sumsToo  = "int4+int4" // in the sums as well
)

// DefaultCodes returns the codecs of the runs on a wire, one after another, if no others are asked for.
func DefaultCodes(wire string) []string {
	switch wire {
	case "gloo":
		return []string{Lossless, summands, sumsToo}
	case "pslite":
		return []string{summands}
	case "tensorflow", "flower", "nvflare":
		return []string{Lossless, summands}
	}
	return nil
}

// AllCodes returns the same for a demo that shows everything.
func AllCodes(wire string) []string {
	switch wire {
	case "flower", "nvflare":
		return []string{Lossless, "int8", summands}
	case "pslite", "tensorflow":
		return []string{Lossless, summands + "+" + Lossless, summands}
	}
	codes := DefaultCodes(wire)
	return append(codes, methods[:]...)
}

// methods are shown one after another by a demo that shows everything, on the wire of gloo and where loss leaves
// replicas alike: one of each kind that the default runs leave out. Three send more than by default, 1 %, for the few
// steps of a demo: unisp would then end no better than guessing, and randomk and gspar a little less accurate.
var methods = [...]string{
	"fp16",
	"bf16",
	"int255",
	"int8",
	"3lc",
	"onebit",
	"stochastic3",
	"terngrad",
	"qsgd",
	"drive",
	"logquant",
	"zipml",
	"skcompress",
	"fastsgd",
	"sketchedsgd",
	"topk",
	"dgc",
	"threshold",
	"randomk(k=0.1)",
	"sparsify",
	"gspar(kappa=0.05)",
	"unisp(kappa=0.25)",
}

// plain reports whether a method is right on average only and so has no error feedback.
func plain(code string) bool {
	c, err := all.New(code)
	return err == nil && c.Traits().Unbiased
}

// newRun returns the run that code asks for. One codec is for all tensors that may lose detail while replicas stay
// alike, two are for gradients and for their sums or the weights.
func newRun(wire, code string) Run {
	r := Run{Wire: wire, Name: code}
	if code == Lossless {
		return r
	}
	gradients, rest, err := all.Pair(code)
	if err != nil {
		return r // checkCode has refused it
	}
	r.Gradients = gradients
	switch wire {
	case "gloo":
		r.Aggregates = rest
	case "flower": // whole models, either way
		r.State = gradients
	default:
		r.State = cmp.Or(rest, gradients)
	}
	return r
}

// runs lists the runs of o: on each wire the direct run first, since the others are compared with it.
func (o Options) runs() (runs []Run) {
	for _, wire := range o.Wires {
		codes := o.Codes
		switch {
		case codes != nil:
		case o.All:
			codes = AllCodes(wire)
		default:
			codes = DefaultCodes(wire)
		}
		runs = append(runs, Run{Wire: wire, Name: Direct})
		for _, code := range codes {
			r := newRun(wire, code)
			r.NoFeedback = plain(r.Gradients)
			runs = append(runs, r)
		}
	}
	return runs
}

// checkRuns reports mistakes in the wires and codes.
func (o Options) checkRuns() error {
	var errs []error
	for i, w := range o.Wires {
		switch {
		case job(w) == nil:
			errs = append(errs, fmt.Errorf("unknown wire %q: want %s", w, strings.Join(Wires(), ", ")))
		case slices.Contains(o.Wires[:i], w):
			errs = append(errs, fmt.Errorf("wire %q is named twice", w))
		}
	}
	for i, c := range o.Codes {
		if err := checkCode(c); err != nil {
			errs = append(errs, fmt.Errorf("run %q: %w", c, err))
		} else if slices.Contains(o.Codes[:i], c) {
			errs = append(errs, fmt.Errorf("run %q is named twice", c))
		} else if strings.Contains(c, "+") && slices.Contains(o.Wires, "flower") {
			errs = append(errs, fmt.Errorf("run %q: models travel both ways on flower: want one CODEC there", c))
		}
	}
	return errors.Join(errs...)
}

// checkCode reports a mistake in one of Options.Codes.
func checkCode(code string) error {
	if code == Direct {
		return errors.New("it is always there, leave it out")
	}
	gradients, rest, err := all.Pair(code)
	if err != nil {
		return errors.New("want lossless, CODEC, or CODEC+CODEC for gradients and for the values made of them")
	}
	if err = checkCodec(gradients); err == nil && rest != "" {
		err = checkCodec(rest)
	}
	return err
}

func checkCodec(text string) error {
	c, err := all.New(text)
	if err != nil {
		return err
	}
	return policy.Check(c)
}
