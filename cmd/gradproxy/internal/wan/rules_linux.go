package wan

import (
	"errors"
	"fmt"
	"os"

	"github.com/gradproxy/gradproxy/tc"
)

// routerDevices of a link's router lead to its first and its second end.
var routerDevices = [2]string{"from", "to"}

// rulesOf returns the orders to the kernel for a link, there and back.
func (p *Plan) rulesOf(l PlannedLink, there, back Quality, s tc.Support) (plans [2]tc.Plan, err error) {
	rules := tc.KernelPlan
	if p.BackEnd == EBPF {
		rules = tc.BPFPlan
	}
	for i, d := range []Direction{l.link.There, l.link.Back} {
		if d.Via != "" {
			return plans, fmt.Errorf("link %s-%s: a shared bottleneck: %w", l.Ends[0].Site, l.Ends[1].Site, errOnlyUser)
		}
		q := []Quality{there, back}[i]
		model := tc.Link{Rate: q.Rate / 8, Delay: q.Delay, Jitter: d.Jitter, Loss: q.Loss, Queue: int(l.link.queueOf(d)),
			Seed: d.Seed ^ uint64(i)<<48} // other losses on the way back
		hop := tc.Hop{
			Sender: tc.Device{Namespace: p.Sites[l.Ends[i].Index].Namespace, Name: l.Ends[i].Device},
			In:     tc.Device{Namespace: l.Router, Name: routerDevices[i]},
			Out:    tc.Device{Namespace: l.Router, Name: routerDevices[1-i]},
		}
		if plans[i], err = rules(model, hop, s); err != nil {
			return plans, fmt.Errorf("link %s-%s: %w", l.Ends[0].Site, l.Ends[1].Site, err)
		}
	}
	return plans, nil
}

// errOnlyUser is why the kernel does not play a link.
var errOnlyUser = errors.New("only the back end user has it")

// kernelPlan plans t for a back end in the kernel, with its rules for all qualities that traces give its links.
func kernelPlan(t *Topology, b BackEnd, why string, s tc.Support) (*Plan, error) {
	p := NewPlan(t, b, why)
	for _, l := range p.Links {
		plans, err := p.rulesOf(l, l.link.There.Quality, l.link.Back.Quality, s)
		if err != nil {
			return nil, err
		}
		for i, d := range []Direction{l.link.There, l.link.Back} {
			p.rules = append(p.rules, plans[i].String())
			for _, step := range d.Trace.Steps {
				if _, err := p.rulesOf(l, step.Quality, step.Quality, s); err != nil {
					return nil, err
				}
			}
		}
	}
	return p, nil
}

// Choose plans t with the back end b or, where b is "", with the first that can do all that is asked: the kernel's own
// disciplines, eBPF, this process. A topology with a seed of its own is played by this process, which alone keeps it.
func Choose(t *Topology, b BackEnd) (*Plan, error) {
	switch {
	case b == User:
		return NewPlan(t, User, "asked for"), nil
	case b != "" && b != Kernel && b != EBPF:
		return nil, fmt.Errorf("there is no back end %q: write user, kernel or ebpf", b)
	case b == "" && t.Seeded:
		return NewPlan(t, User, "it keeps the seed"), nil
	case b == "" && os.Geteuid() != 0:
		return NewPlan(t, User, "the features of this kernel are not known without root"), nil
	}
	s, err := tc.Supported()
	if b != "" {
		if err == nil {
			var p *Plan
			if p, err = kernelPlan(t, b, "asked for", s); err == nil {
				return p, nil
			}
		}
		return nil, fmt.Errorf("%s: %w", b, err)
	}
	if err != nil {
		return NewPlan(t, User, "the features of the kernel are not known: "+err.Error()), nil
	}
	for _, b := range []BackEnd{Kernel, EBPF} {
		if p, err := kernelPlan(t, b, "this kernel has all that the links need", s); err == nil {
			return p, nil
		}
	}
	return NewPlan(t, User, lacks(t, s)), nil
}

// lacks says why the kernel does not play t.
func lacks(t *Topology, s tc.Support) string {
	for _, l := range t.Links {
		if l.There.Via != "" || l.Back.Via != "" {
			return "there is a shared bottleneck"
		}
	}
	if !s.Netem && !s.FQ {
		return "this kernel has neither netem nor fq"
	}
	_, err := kernelPlan(t, Kernel, "", s)
	return err.Error()
}
