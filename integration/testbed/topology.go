//go:build linux

package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// Carried is the traffic that the links of a topology have carried, as gradproxy wan status reports it.
type Carried struct {
	Currency string  `json:"currency"`
	Bytes    uint64  `json:"bytes"` // of all links
	Cost     float64 `json:"cost"`
	Links    []Route `json:"links"`
}

// A Route is one direction of a link.
type Route struct {
	From  string  `json:"from"`
	To    string  `json:"to"`
	Bytes uint64  `json:"bytes"` // headers from IP upwards included
	Price float64 `json:"price_per_gb"`
	Cost  float64 `json:"cost"`
}

// A plan has the fields of the JSON of gradproxy wan up --plan that are needed here.
type plan struct {
	Name  string
	Sites []struct {
		Name, Namespace string
		Addresses       []netip.Addr
		Networks        []netip.Prefix
	}
	Links []struct {
		Ends []struct{ Site, Device string }
	}
}

// Lay lays out a topology, a file or the name of a ready one, by gradproxy wan up: sites are in its order, and have
// certificates. It ends with Close and with this process.
func (g *Gradproxy) Lay(ctx context.Context, topology string) (w *WAN, err error) {
	out, err := exec.CommandContext(ctx, g.binary, "wan", "up", topology, "--plan", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("testbed: plan %s: %w", topology, err)
	}
	var plan plan
	if err := json.Unmarshal(out, &plan); err != nil {
		return nil, fmt.Errorf("testbed: plan %s: %w", topology, err)
	}
	cert := []string{"cert", "--ca-dir", g.dir, "--domain", domain, "--force"}
	w = &WAN{laid: &laid{gradproxy: g, name: plan.Name}}
	for _, s := range plan.Sites {
		if len(s.Addresses) != 2 {
			return nil, fmt.Errorf("testbed: %s: site %s has no address of each family", topology, s.Name)
		}
		cert = append(cert, s.Name)
		w.Sites = append(w.Sites, &Site{Site: s.Name, Addr: s.Addresses[0], Addr6: s.Addresses[1], Network: s.Networks[0], Network6: s.Networks[1]})
	}
	for _, l := range plan.Links {
		for _, end := range l.Ends {
			for _, s := range w.Sites {
				if s.Site == end.Site && s.Interface == "" {
					s.Interface = end.Device
				}
			}
		}
	}
	if out, err := exec.CommandContext(ctx, g.binary, cert...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testbed: certificates: %w\n%s", err, out)
	}
	if w.laid.process, err = startProcess(exec.Command(g.binary, "wan", "up", topology), nil); err != nil {
		return nil, err
	}
	for {
		if _, err = w.Carried(ctx); err == nil {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.laid.done:
			return nil, fmt.Errorf("testbed: wan up %s: %w\n%s", topology, errOr(w.laid.err, "it ended"), w.laid.log)
		case <-ctx.Done():
			return nil, errors.Join(err, w.Close())
		}
	}
	for i, s := range w.Sites {
		if s.Namespace, err = wansim.OpenNamespace(plan.Sites[i].Namespace); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// A laid topology is played by a process of its own.
type laid struct {
	gradproxy *Gradproxy
	name      string
	*process
}

// Carried returns the traffic of the links of a WAN that Lay has made.
func (w *WAN) Carried(ctx context.Context) (c Carried, err error) {
	return w.laid.report(ctx, "status")
}

// Down takes a WAN that Lay has made down, and returns the traffic of its links.
func (w *WAN) Down(ctx context.Context) (c Carried, err error) {
	l := w.laid
	if c, err = l.report(ctx, "down"); err == nil {
		select {
		case <-l.done:
			w.laid, err = nil, l.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return c, err
}

// report returns what gradproxy wan says of the traffic at an order.
func (l *laid) report(ctx context.Context, order string) (c Carried, err error) {
	out, err := exec.CommandContext(ctx, l.gradproxy.binary, "wan", order, l.name, "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &c)
	}
	if err != nil {
		return c, fmt.Errorf("testbed: wan %s %s: %w", order, l.name, err)
	}
	return c, nil
}

// close takes the topology down.
func (l *laid) close() error {
	if l.ended() {
		return fmt.Errorf("testbed: wan up %s ended by itself: %w\n%s", l.name, errOr(l.err, "exit code 0"), l.log)
	}
	return l.terminate(time.Minute)
}
