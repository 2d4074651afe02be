package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
)

// An excerpt is the part of a site's settings that one peer's own must mirror. A running proxy sends it to that peer as
// JSON, to which a later version may add fields. Keys, paths, other peers and rules of the policy are no part of it.
type excerpt struct {
	Site         string         `json:"site"`
	Intercepts   bool           `json:"intercepts"` // connections to Networks are taken
	Ports        string         `json:"ports"`      // of these connections
	Networks     []netip.Prefix `json:"networks"`   // behind the peer
	MayDial      []string       `json:"may_dial"`   // by the peer
	Jobs         []excerptJob   `json:"jobs"`       // with hosts behind the peer
	References   bool           `json:"references"` // there is room for shared values
	Pads         bool           `json:"pads"`       // the bytes that it sends are padded
	Resume       string         `json:"resume"`
	RefusedRetry string         `json:"refused_retry"`
}

type excerptJob struct {
	Name       string         `json:"name"`
	Networks   []netip.Prefix `json:"networks"`
	Ranks      int            `json:"ranks"`
	Sums       string         `json:"sums"`
	Aggregates string         `json:"aggregates"`
}

// Bounds of an excerpt's lists.
const (
	maxExcerptNetworks = 256
	maxExcerptJobs     = 64
)

// Excerpt returns the settings of c that are about a peer, for that peer. It returns nil if there are none, or if they
// exceed the bounds of an excerpt.
func (c *Config) Excerpt(peer string) []byte {
	p := c.peer(peer)
	if p == nil {
		return nil
	}
	e := excerpt{Site: c.Site, Intercepts: c.Intercept.Mode != ModeOff, Ports: c.Intercept.Ports.String(), Networks: p.Networks, MayDial: []string{},
		Jobs: []excerptJob{}, References: c.References > 0, Pads: c.Tunnel.Pad > 0, Resume: c.Tunnel.Resume.String(), RefusedRetry: c.RefusedRetry.String()}
	for _, r := range p.MayDial {
		e.MayDial = append(e.MayDial, r.String())
	}
	for _, j := range c.Jobs {
		if !reaches(j.Networks, p.Networks) {
			continue
		}
		job := excerptJob{Name: j.Name, Networks: between(j.Networks, p), Ranks: j.Ranks, Sums: parser.SumsNames()[j.Sums], Aggregates: "lossless"}
		if j.LossyAggregates {
			job.Aggregates = "lossy"
		}
		e.Jobs = append(e.Jobs, job)
	}
	text, err := json.Marshal(e)
	if err != nil || len(text) > proxy.MaxExcerpt || e.check() != nil {
		return nil
	}
	return text
}

// check reports the first list beyond its bound.
func (e *excerpt) check() error {
	if len(e.Networks) > maxExcerptNetworks || len(e.MayDial) > maxExcerptNetworks || len(e.Jobs) > maxExcerptJobs {
		return fmt.Errorf("more than %d networks or %d jobs", maxExcerptNetworks, maxExcerptJobs)
	}
	for _, j := range e.Jobs {
		if len(j.Networks) > maxExcerptNetworks {
			return fmt.Errorf("a job of more than %d networks", maxExcerptNetworks)
		}
	}
	return nil
}

// between returns the networks of a job that have hosts behind a peer, or hosts here that the peer may reach. The
// others are of third sites.
func between(networks []netip.Prefix, p *Peer) (both []netip.Prefix) {
	for _, n := range networks {
		if slices.ContainsFunc(p.Networks, n.Overlaps) || slices.ContainsFunc(p.MayDial, func(r proxy.DialRule) bool { return n.Overlaps(r.Network) }) {
			both = append(both, n)
		}
	}
	return both
}

// reaches reports whether any network of one list overlaps one of the other.
func reaches(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(n netip.Prefix) bool { return slices.ContainsFunc(b, n.Overlaps) })
}

// Live compares c with the excerpt that the running proxy of a peer has sent. Live does not trust the excerpt: a value
// that could not stand in a configuration is an error, and is not printed as it is.
func (c *Config) Live(peer string, text []byte) (Problems, error) {
	there, err := fromExcerpt(c.Site, peer, text)
	if err != nil {
		return nil, fmt.Errorf("the answer of %s cannot be used: %w", peer, err)
	}
	return Together([]*Config{c, there}), nil
}

// fromExcerpt makes a configuration of an excerpt by a peer about a site.
func fromExcerpt(site, peer string, text []byte) (*Config, error) {
	var e excerpt
	if len(text) > proxy.MaxExcerpt {
		return nil, fmt.Errorf("it has more than %d bytes", proxy.MaxExcerpt)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, errors.New("it is no excerpt of settings")
	}
	if e.Site != peer {
		return nil, fmt.Errorf("it is that of another site, %.70q", e.Site)
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("it has %w", err)
	}
	c := defaults("the running proxy of " + peer)
	c.live, c.Site = true, peer
	c.Peers = []Peer{{Name: site, Networks: e.Networks}}
	if !e.Intercepts {
		c.Intercept.Mode = ModeOff
	} else {
		c.Intercept.Mode = ModeRedirect // as good as any other here
	}
	if e.Pads {
		c.Tunnel.Pad = 1
	}
	if !e.References {
		c.References = 0
	}
	errs := []error{valid(e.Networks), into(&c.Intercept.Ports, e.Ports, parsePorts), into(&c.Tunnel.Resume, e.Resume, parseDuration),
		into(&c.RefusedRetry, e.RefusedRetry, parseDuration)}
	for _, r := range e.MayDial {
		var rule proxy.DialRule
		errs = append(errs, into(&rule, r, proxy.ParseDialRule))
		c.Peers[0].MayDial = append(c.Peers[0].MayDial, rule)
	}
	for _, j := range e.Jobs {
		job := Job{Networks: j.Networks, Ranks: j.Ranks, LossyAggregates: j.Aggregates == "lossy"}
		errs = append(errs, valid(j.Networks), into(&job.Name, j.Name, parseName), into(&job.Sums, j.Sums, parseSums))
		c.Jobs = append(c.Jobs, job)
	}
	return c, errors.Join(errs...)
}

// valid returns an error if one of the networks is none.
func valid(networks []netip.Prefix) error {
	for _, n := range networks {
		if _, err := parseNetwork(n.String()); err != nil {
			return err
		}
	}
	return nil
}

// into reads a value by the function that reads it in files.
func into[T any](dst *T, text string, parse func(string) (T, error)) (err error) {
	if len(text) > 100 {
		return errors.New("a value of more than 100 bytes")
	}
	*dst, err = parse(text)
	return err
}

func parseSums(text string) (parser.Sums, error) {
	i := slices.Index(parser.SumsNames(), text)
	if i < 0 {
		return 0, fmt.Errorf("%q is no value of sums", text)
	}
	return parser.Sums(i), nil
}
