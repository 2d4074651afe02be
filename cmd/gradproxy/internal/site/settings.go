package site

import (
	"fmt"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	codecs "github.com/gradproxy/gradproxy/codecs/all"
	parsers "github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// Known returns the codecs and protocols that a configuration may name in this build.
func Known() config.Known {
	k := config.Known{Codec: codecs.New}
	for _, p := range parsers.Protocols() {
		k.Protocols = append(k.Protocols, p.String())
	}
	return k
}

// settingsOf returns the settings that may change while a proxy runs.
func settingsOf(c *config.Config, stagings []policy.Staging) (proxy.Settings, error) {
	s := proxy.Settings{RefusedRetry: c.RefusedRetry, Shadow: c.Shadow}
	if c.RefusedRetry == 0 {
		s.RefusedRetry = -1
	}
	for _, p := range c.Peers {
		s.Peers = append(s.Peers, proxy.Peer{Name: p.Name, Networks: p.Networks, MayDial: p.MayDial})
	}
	for _, j := range c.Jobs {
		s.Jobs = append(s.Jobs, proxy.Job{Name: j.Name, Networks: j.Networks, Ranks: j.Ranks, Sums: j.Sums, LossyAggregates: j.LossyAggregates})
	}
	var rules []policy.Rule
	for _, r := range c.Policy {
		rules = append(rules, rule(r))
	}
	var err error
	if s.Policy, err = policy.New(rules, codecs.New); err != nil {
		return s, fmt.Errorf("%s: %w", c.File, err)
	}
	if s.Policy, err = policy.Staged(s.Policy, stagings, codecs.New); err != nil {
		return s, fmt.Errorf("%s: budget: %w", c.File, err)
	}
	return s, nil
}

func rule(r config.Rule) policy.Rule {
	p := policy.Rule{Job: r.Job, Protocol: r.Protocol, Roles: r.Roles, DTypes: r.DTypes,
		MinBytes: int(r.MinBytes), MaxBytes: int(r.MaxBytes), Codec: r.Codec, NoFeedback: r.NoFeedback, FlushEvery: r.FlushEvery}
	for _, d := range []policy.Direction{policy.FromClient, policy.FromServer} {
		if d.String() == r.Direction {
			p.Direction = &d
		}
	}
	return p
}
