package wan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A Network is a plan that is up. It is safe for concurrent use.
type Network struct {
	plan   *Plan
	sites  []*wansim.Namespace
	links  []*playedLink
	begin  time.Time
	ctx    context.Context // of all that plays the links
	end    context.CancelFunc
	traces sync.WaitGroup
	failed chan error // of a link or a trace
}

// A link is one that a back end plays.
type link interface {
	// set changes both directions, from the next packet on.
	set(there, back Quality) error
	counters() (there, back Counters, err error)
	// done is closed when the link ends by itself; nil: it does not.
	done() <-chan struct{}
	close() error
}

// Up makes all of the plan, and removes the finished parts if ctx ends before it is done; afterwards the end of ctx has
// no effect. The network ends with Close; Hold and State.Down remove the leftovers of a process that is killed. Needs
// root.
func Up(ctx context.Context, p *Plan) (n *Network, err error) {
	n = &Network{plan: p, failed: make(chan error, 1)}
	n.ctx, n.end = context.WithCancel(context.WithoutCancel(ctx)) // its end is noted in its counters
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.makeSites(ctx); err != nil {
		return n, err
	}
	lay, err := newBackEnd(n)
	if err != nil {
		return n, err
	}
	for _, l := range p.Links {
		if err := n.interrupted(ctx); err != nil {
			return n, err
		}
		played, err := lay(l)
		if err != nil {
			return n, err
		}
		n.links = append(n.links, &playedLink{link: played, fail: n.fail, base: [2]Quality{l.link.There.Quality, l.link.Back.Quality}})
		go n.watch(l, played)
	}
	n.begin = time.Now()
	return n, nil
}

// interrupted is an error if ctx has ended while the network is laid out.
func (n *Network) interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("wan %s: ended while it was laid out, and removed: %w", n.plan.Name, context.Cause(ctx))
}

// newBackEnd returns the function that lays links.
func newBackEnd(n *Network) (func(PlannedLink) (link, error), error) {
	switch n.plan.BackEnd {
	case User:
		return userLinks(n)
	case Kernel, EBPF:
		return vethLinks(n)
	}
	return nil, fmt.Errorf("wan %s: there is no back end %q: write user, kernel or ebpf", n.plan.Name, n.plan.BackEnd)
}

// makeSites makes the namespaces. In each, /etc/hosts names all sites, and this machine's own name stands for the site:
// some frameworks announce the address that it resolves to.
func (n *Network) makeSites(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("wan: %w", err)
	}
	for _, s := range n.plan.Sites {
		if err := n.interrupted(ctx); err != nil {
			return err
		}
		ns, err := wansim.NewNamespace(s.Namespace)
		if err != nil {
			return err
		}
		n.sites = append(n.sites, ns)
		hosts := map[netip.Addr][]string{}
		for _, other := range n.plan.Sites {
			for _, a := range other.Addresses {
				hosts[a] = []string{other.Name}
				if other.Name == s.Name {
					hosts[a] = append(hosts[a], host)
				}
			}
		}
		if err := ns.SetHosts(hosts); err != nil {
			return err
		}
		if s.Forwards {
			if err := n.forward(ns); err != nil {
				return err
			}
		}
	}
	return nil
}

// forward makes a namespace pass on packets that are for others, of the families that the sites have.
func (n *Network) forward(ns *wansim.Namespace) error {
	for _, a := range n.plan.Sites[0].Addresses {
		name := "net.ipv4.ip_forward"
		if a.Is6() {
			name = "net.ipv6.conf.all.forwarding"
		}
		if err := ns.SetSysctl(name, "1"); err != nil {
			return err
		}
	}
	return nil
}

// watch reports a link that ends while the network is up.
func (n *Network) watch(p PlannedLink, l link) {
	select {
	case <-n.ctx.Done():
	case <-l.done():
		if n.ctx.Err() == nil {
			n.fail(n.ended(p, l.close()))
		}
	}
}

// ended is the error of a link that has ended by itself; why may be nil.
func (n *Network) ended(p PlannedLink, why error) error {
	said := fmt.Errorf("wan %s: the link %s-%s has ended: gradproxy wan up lays the network out anew", n.plan.Name, p.Ends[0].Site, p.Ends[1].Site)
	return errors.Join(said, why)
}

func (n *Network) fail(err error) {
	select {
	case n.failed <- err:
	default: // the first one counts
	}
}

// Failed returns a channel that gets the error of a link that does not last.
func (n *Network) Failed() <-chan error { return n.failed }

// Follow lets the links change as their traces say, from now on.
func (n *Network) Follow() {
	for i, p := range n.plan.Links {
		if len(p.link.There.Trace.Steps)+len(p.link.Back.Trace.Steps) > 0 {
			n.traces.Go(func() { n.follow(p.link, n.links[i]) })
		}
	}
}

func (n *Network) follow(l Link, played *playedLink) {
	begin := time.Now()
	for {
		up := time.Since(begin)
		there, leftA := l.There.Trace.At(up, l.There.Quality)
		back, leftB := l.Back.Trace.At(up, l.Back.Quality)
		if err := played.trace([2]Quality{there, back}); err != nil {
			n.fail(err)
			return
		}
		left := leftA
		if left == 0 || leftB != 0 && leftB < left {
			left = leftB
		}
		if left == 0 {
			return // nothing changes any more
		}
		select {
		case <-time.After(left):
		case <-n.ctx.Done():
			return
		}
	}
}

// Report returns the counts of the links.
func (n *Network) Report() (Report, error) {
	carried := make([][2]Counters, len(n.links))
	var errs []error
	for i, l := range n.links {
		var err error
		carried[i][0], carried[i][1], err = l.counters()
		errs = append(errs, err)
	}
	r := n.plan.report(time.Since(n.begin).Seconds(), carried)
	for i, l := range n.links {
		now := l.ordered()
		r.Links[2*i].Now, r.Links[2*i+1].Now = now[0], now[1]
	}
	return r, errors.Join(errs...)
}

// Close removes the links and the namespaces. A process that runs in a namespace keeps it alive, without links, until
// it ends.
func (n *Network) Close() error {
	n.end()
	n.traces.Wait()
	for _, l := range n.links {
		l.ended()
	}
	errs := make([]error, len(n.links))
	var all sync.WaitGroup
	for i, l := range n.links {
		all.Go(func() { errs[i] = l.close() })
	}
	all.Wait()
	for _, s := range n.sites {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
