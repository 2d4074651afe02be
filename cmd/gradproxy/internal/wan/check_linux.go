package wan

import (
	"context"
	"errors"
	"fmt"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Check measures the links of n, one direction after the other, and calls each for each when it is known.
func (n *Network) Check(ctx context.Context, each func(CheckedWay)) (Checked, error) {
	return n.plan.check(ctx, n.sites, each)
}

// Check measures the links of the network that is up, as Network.Check does.
func (s *State) Check(ctx context.Context, each func(CheckedWay)) (c Checked, err error) {
	if !s.Alive() {
		return c, fmt.Errorf("wan %s: its process has died: gradproxy wan down %[1]s removes its leftovers", s.Plan.Name)
	}
	for _, l := range s.Plan.Links {
		if l.There.Steps+l.Back.Steps > 0 {
			return c, fmt.Errorf("wan %s: the link %s-%s follows a trace: take the network down and check its file", s.Plan.Name, l.Ends[0].Site, l.Ends[1].Site)
		}
	}
	var sites []*wansim.Namespace
	defer func() {
		for _, ns := range sites {
			err = errors.Join(err, ns.Close())
		}
	}()
	for _, planned := range s.Plan.Sites {
		ns, err := wansim.OpenNamespace(planned.Namespace)
		if err != nil {
			return c, err
		}
		sites = append(sites, ns)
	}
	return s.Plan.check(ctx, sites, each)
}

func (p *Plan) check(ctx context.Context, sites []*wansim.Namespace, each func(CheckedWay)) (Checked, error) {
	c := Checked{Name: p.Name, BackEnd: p.BackEnd, Links: []CheckedWay{}}
	for _, l := range p.Links {
		for _, q := range []question{p.ask(l.Ends, l.There, l.Back), p.ask([2]End{l.Ends[1], l.Ends[0]}, l.Back, l.There)} {
			probe := prober{question: q, from: sites[q.from], to: sites[q.to], addr: p.Sites[q.to].Addresses[0]}
			w, err := q.try(p.Sites[q.from].Name, p.Sites[q.to].Name, func() (answer, error) { return probe.all(ctx) })
			if err != nil {
				return c, fmt.Errorf("wan %s: %w", p.Name, err)
			}
			c.Links = append(c.Links, w)
			each(w)
		}
	}
	return c, nil
}
