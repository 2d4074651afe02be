package policy

import (
	"cmp"
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

type ruleList struct {
	rules     []compiled
	lossless  codecs.Codec
	aggregate codecs.Codec
}

type compiled struct {
	Rule
	codec codecs.Codec // nil: verbatim
}

// Choose returns the codec of the first rule that matches, made safe for the role.
func (p *ruleList) Choose(f Flow, t tensor.Tensor, _ Measured) Choice {
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(f, t) {
			return p.safe(f, t, r.codec, &r.Rule)
		}
	}
	switch {
	case t.Size < MinBytes && (t.Base == 0 || t.Size < MinShared):
		return Choice{Why: tensor.TooSmall}
	case t.Role == tensor.Aggregate && f.LossyAggregates:
		return p.safe(f, t, p.aggregate, &Rule{})
	}
	return Choice{Codec: p.lossless, Why: tensor.NoRule}
}

func (r *compiled) matches(f Flow, t tensor.Tensor) bool {
	return (r.Job == "" || r.Job == f.Job) &&
		(r.Protocol == "" || r.Protocol == f.Protocol) &&
		(r.Direction == nil || *r.Direction == f.Direction) &&
		(len(r.Roles) == 0 || slices.Contains(r.Roles, t.Role)) &&
		(len(r.DTypes) == 0 || slices.Contains(r.DTypes, t.DType)) &&
		t.Size >= r.MinBytes && (r.MaxBytes == 0 || t.Size <= r.MaxBytes)
}

// safe replaces a lossy codec by the lossless one where the parser gives no proof that loss is allowed.
func (p *ruleList) safe(f Flow, t tensor.Tensor, c codecs.Codec, r *Rule) Choice {
	if c == nil || !codecs.Lossy(c) {
		return Choice{Codec: c}
	}
	unbiased := c.Traits().Unbiased
	switch {
	case unbiased && t.Role != tensor.Gradient:
		return Choice{Codec: p.lossless, Why: cmp.Or(t.Why, tensor.NoRule)}
	case t.Role == tensor.State && slices.Contains(r.Roles, tensor.State) && t.Base != 0 && t.DType.Float():
		return Choice{Codec: c, Closed: true, Flush: r.FlushEvery}
	case t.Role != tensor.Gradient && !(t.Role == tensor.Aggregate && f.LossyAggregates), t.Key == 0:
		return Choice{Codec: p.lossless, Why: cmp.Or(t.Why, tensor.RoleUnproved)}
	case !t.DType.Float():
		return Choice{Codec: p.lossless, Why: cmp.Or(t.Why, tensor.DTypeUnknown)}
	}
	chosen := Choice{Codec: c, Feedback: !unbiased && !r.NoFeedback || t.Role == tensor.Aggregate}
	if chosen.Feedback {
		chosen.Flush = r.FlushEvery
	}
	return chosen
}
