package wan

import (
	"fmt"
	"net/netip"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A userLink is a link of package wansim: two TUN devices and threads of this process between them.
type userLink struct {
	*wansim.TUN
	link       Link
	there, ret *wansim.Bottleneck // nil: none
}

// userLinks returns the function that lays links of the back end in user space, which end with the network.
func userLinks(n *Network) (func(PlannedLink) (link, error), error) {
	shared := map[string]*wansim.Bottleneck{}
	for _, b := range n.plan.topology.Bottlenecks {
		bottleneck, err := wansim.NewBottleneck(b.Rate/8, int(b.queue()))
		if err != nil {
			return nil, fmt.Errorf("wan %s: bottleneck %s: %w", n.plan.Name, b.Name, err)
		}
		shared[b.Name] = bottleneck
	}
	return func(p PlannedLink) (link, error) {
		l := &userLink{link: p.link, there: shared[p.link.There.Via], ret: shared[p.link.Back.Via]}
		there, back := l.models(p.link.There.Quality, p.link.Back.Quality)
		var err error
		if l.TUN, err = wansim.ConnectNamespaces(n.ctx, n.endOf(p.Ends[0]), n.endOf(p.Ends[1]), there, back); err != nil {
			return nil, fmt.Errorf("wan %s: link %s-%s: %w", n.plan.Name, p.Ends[0].Site, p.Ends[1].Site, err)
		}
		return l, nil
	}, nil
}

// endOf describes the device of an end.
func (n *Network) endOf(e End) wansim.NamespaceEnd {
	return wansim.NamespaceEnd{Namespace: n.sites[e.Index], Device: e.Device, Addresses: n.hosts(e), Routes: e.Routes}
}

// hosts returns the addresses of an end as networks of one host, as several devices have them.
func (n *Network) hosts(e End) (all []netip.Prefix) {
	for _, a := range n.plan.Sites[e.Index].Addresses {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

func (l *userLink) models(there, back Quality) (a, b wansim.Link) {
	return l.link.model(l.link.There, there, l.there), l.link.model(l.link.Back, back, l.ret)
}

func (l *userLink) set(there, back Quality) error { return l.SetLink(l.models(there, back)) }

func (l *userLink) counters() (there, back Counters, err error) {
	s := l.Stats()
	return Counters(s.AB), Counters(s.BA), nil
}

func (l *userLink) done() <-chan struct{} { return l.Done() }

func (l *userLink) close() error { return l.Close() }
