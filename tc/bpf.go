package tc

import "time"

// horizon is how far ahead packets may be sent: longer than any queue and delay.
const horizon = time.Hour

// BPFPlan returns the rules that make h the link l with the programs of shape.c, as far as s says that their needs are
// there; the error wraps errors.ErrUnsupported where one is not. Loss and marks come first, where packets come into the
// router, then bottleneck, queue and delay where they leave it. Without fq there are loss, marks and counters only.
func BPFPlan(l Link, h Hop, s Support) (Plan, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	paced := l.Rate > 0 || l.Delay > 0 || l.Jitter > 0
	switch {
	case !s.BPF:
		return nil, unsupported("kernel has no clsact or lets no BPF program be attached there", "use the user-space back end")
	case paced && !s.FQ:
		return nil, unsupported("kernel has no fq, without which eBPF offers loss and marks only, no rate, delay or jitter",
			"use the user-space back end")
	}
	p := Plan{
		Segments{h.Sender, 1},
		Clsact{h.In},
		Loss{Device: h.In, Probability: l.Loss, Marks: l.Marks, Seed: l.Seed},
	}
	if paced {
		p = append(p,
			FQ{Place{Device: h.Out, Parent: Root, Handle: outer}, held, held, horizon},
			Clsact{h.Out},
			Pace{Device: h.Out, Rate: uint64(l.Rate), Delay: l.Delay, Jitter: l.Jitter, Queue: uint64(queue(l)), Seed: l.Seed})
	}
	return p, nil
}
