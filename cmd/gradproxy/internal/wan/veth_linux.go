package wan

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gradproxy/gradproxy/tc"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A vethLink is a link that the kernel plays: a router between the sites, whose devices have the rules of package tc.
type vethLink struct {
	plan    func(there, back Quality) ([2]tc.Plan, error)
	router  *wansim.Namespace
	mu      sync.Mutex     // of the fields below, which a trace changes while others count
	applied [2]*tc.Applied // there, back
	before  [2]Counters    // of rules that others have replaced: the kernel counts for each anew
}

// vethLinks returns the function that lays links of the back ends in the kernel.
func vethLinks(n *Network) (func(PlannedLink) (link, error), error) {
	support, err := tc.Supported()
	if err != nil {
		return nil, fmt.Errorf("wan %s: %w", n.plan.Name, err)
	}
	return func(p PlannedLink) (link, error) {
		l := &vethLink{plan: func(there, back Quality) ([2]tc.Plan, error) { return n.plan.rulesOf(p, there, back, support) }}
		if err := l.lay(n, p); err != nil {
			if l.router != nil {
				err = errors.Join(err, l.close())
			}
			return nil, fmt.Errorf("wan %s: link %s-%s: %w", n.plan.Name, p.Ends[0].Site, p.Ends[1].Site, err)
		}
		return l, nil
	}, nil
}

func (l *vethLink) lay(n *Network, p PlannedLink) (err error) {
	if l.router, err = wansim.NewNamespace(p.Router); err != nil {
		return err
	}
	if err := n.forward(l.router); err != nil {
		return err
	}
	for i, e := range p.Ends {
		// The networks that one site reaches through the link lie on the other side of the router.
		toward := wansim.NamespaceEnd{Namespace: l.router, Device: routerDevices[i], Routes: p.Ends[1-i].Routes}
		if err := wansim.ConnectVeth(n.endOf(e), toward); err != nil {
			return err
		}
	}
	plans, err := l.plan(p.link.There.Quality, p.link.Back.Quality)
	if err != nil {
		return err
	}
	for i, plan := range plans {
		if l.applied[i], err = plan.Apply(); err != nil {
			return err
		}
	}
	return nil
}

func (l *vethLink) set(there, back Quality) error {
	plans, err := l.plan(there, back)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, plan := range plans {
		was, err := l.count(i)
		if err != nil {
			return err
		}
		if err := l.applied[i].Change(plan); err != nil {
			return err
		}
		is, err := l.count(i)
		if err != nil {
			return err
		}
		if is.Packets < was.Packets || is.Lost < was.Lost || is.Dropped < was.Dropped {
			l.before[i].add(was)
		}
	}
	return nil
}

// count returns the counts of the rules that are in force now. mu is held.
func (l *vethLink) count(i int) (Counters, error) {
	c, err := l.applied[i].Plan().Counters()
	return Counters{Packets: c.Packets, Bytes: c.Bytes, Lost: c.Lost, Dropped: c.Dropped}, err
}

func (c *Counters) add(o Counters) {
	c.Packets, c.Bytes, c.Lost, c.Dropped = c.Packets+o.Packets, c.Bytes+o.Bytes, c.Lost+o.Lost, c.Dropped+o.Dropped
}

func (l *vethLink) counters() (there, back Counters, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.before
	for i := range all {
		c, err := l.count(i)
		if err != nil {
			return there, back, err
		}
		all[i].add(c)
	}
	return all[0], all[1], nil
}

// done is nil: the kernel's links last.
func (l *vethLink) done() <-chan struct{} { return nil }

// close removes the router, and with it the devices and rules.
func (l *vethLink) close() error { return l.router.Close() }
