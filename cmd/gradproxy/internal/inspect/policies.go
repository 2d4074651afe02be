package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	codeclist "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser/all"
	"github.com/gradproxy/gradproxy/proxy/estimate"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Lossless is the policy that loses nothing. Every report has its cost.
const Lossless = "lossless"

// DefaultPolicies are the policies to cost before one has been chosen: the policies of docs/loss.md, which recommends
// int4.
func DefaultPolicies() []string {
	return []string{Lossless, "int4", "int4+int4", "3lc", "3lc+int4"}
}

// CheckPolicy reports an error in the text of a policy: "CODEC" for gradients and for a server's weights (state),
// aggregates being lossless, or "CODEC+CODEC" for the former and aggregates.
func CheckPolicy(text string) error {
	_, err := newPolicy(text)
	return err
}

func newPolicy(text string) (policy.Policy, error) {
	gradients, aggregates, err := codeclist.Pair(text)
	if err != nil {
		return nil, fmt.Errorf("policy %q: write CODEC for gradients, or CODEC+CODEC for gradients and aggregates", text)
	}
	rules := []policy.Rule{{Roles: []tensor.Role{tensor.Gradient, tensor.State}, MinBytes: policy.MinBytes, Codec: gradients}}
	if aggregates != "" {
		rules = append(rules, policy.Rule{Roles: []tensor.Role{tensor.Aggregate}, MinBytes: policy.MinBytes, Codec: aggregates})
	}
	p, err := policy.New(rules, codeclist.New)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", text, errors.Unwrap(err))
	}
	return p, nil
}

// A costing is a policy that is tried on a capture.
type costing struct {
	text    string
	trial   *estimate.Estimator
	cost    Cost
	traffic traffic
	quality estimate.Quality // of all that may have lost something, once the costing has ended
}

// newCostings begins lossless, and all that c names.
func newCostings(c Config) (list []*costing, err error) {
	for _, text := range append([]string{Lossless}, c.Policies...) {
		if slices.ContainsFunc(list, func(x *costing) bool { return x.text == text }) {
			continue
		}
		chosen, err := newPolicy(text)
		if err != nil {
			return list, err
		}
		trial, err := estimate.New(estimate.Config{Codecs: codeclist.New, Protocols: all.Protocols(), Policy: chosen, Residuals: int64(c.MaxCopies)})
		if err != nil {
			return list, err
		}
		list = append(list, &costing{text: text, trial: trial})
	}
	return list, nil
}

// flow begins one direction of a connection, to a host.
func (c *costing) flow(protocol string, d policy.Direction, to string) *estimate.Flow {
	return c.trial.FlowTo(policy.Flow{Job: job, Protocol: protocol, Direction: d, LossyAggregates: strings.Contains(c.text, "+")}, to, nil)
}

// add adds a direction's bytes and the bytes that its flow sends for some of them, which may be none; the rest travels
// verbatim.
func (c *costing) add(bytes int, s estimate.Sizes) (wire int) {
	before := c.cost.Bytes
	c.cost.RawBytes += bytes
	for role, size := range s.Tensors {
		c.cost.add(c.cost.Roles.of(role), size.Raw, size.Wire)
		bytes -= int(size.Raw)
	}
	bytes -= int(s.Opaque.Raw)
	c.cost.add(&c.cost.Roles.Opaque, s.Opaque.Raw, s.Opaque.Wire)
	c.cost.add(&c.cost.Roles.Opaque, int64(bytes), int64(bytes))
	return c.cost.Bytes - before
}

// end returns the policy's cost.
func (c *costing) end() Cost {
	c.cost.Codec = c.text
	for _, role := range tensor.Roles() {
		q := c.trial.Quality(role)
		c.quality.Add(&q)
	}
	c.cost.ShortOfMemory = c.trial.Short()
	c.cost.Ratio = 1
	if c.cost.Bytes > 0 {
		c.cost.Ratio = float64(c.cost.RawBytes) / float64(c.cost.Bytes)
	}
	return c.cost
}
