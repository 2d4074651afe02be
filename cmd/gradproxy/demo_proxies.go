package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/pair"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// pairOf returns the configuration of the two proxies of a run.
func pairOf(r demo.Run, between demo.Between) pair.Config {
	cfg := pair.Config{Between: between, Near: r.Near, Far: r.Far}
	if r.Gradients != "" {
		cfg.Jobs = []proxy.Job{{Name: "demo", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			LossyAggregates: r.Aggregates != ""}}
		cfg.Rules = []policy.Rule{{Job: "demo", Roles: []tensor.Role{tensor.Gradient}, MinBytes: policy.MinBytes, Codec: r.Gradients,
			NoFeedback: r.NoFeedback}}
	}
	for _, more := range []policy.Rule{
		{Roles: []tensor.Role{tensor.Aggregate}, Codec: r.Aggregates},
		{Roles: []tensor.Role{tensor.State}, Codec: r.State},
	} {
		if more.Codec != "" {
			more.Job, more.MinBytes = "demo", policy.MinBytes
			cfg.Rules = append(cfg.Rules, more)
		}
	}
	return cfg
}

// throughProxies starts the two proxies of a run.
func throughProxies(ctx context.Context, r demo.Run, between demo.Between) (demo.Path, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	p, err := pair.Start(ctx, pairOf(r, between))
	if err != nil {
		return nil, err
	}
	return p, nil
}
