package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

type ruleList struct {
	rules     []compiled
	lossless  codecs.Codec
	aggregate codecs.Codec
	text      string // of lossless
}

type compiled struct {
	Rule
	codec codecs.Codec // nil: verbatim
	text  string       // of codec
}

// New compiles rules. Codec texts are made codecs by the function newCodec; lossless is its codec for whatever no rule
// allows to lose anything, and AggregateCodec must exist as well. An error names the rule by its place, from 1.
func New(rules []Rule, newCodec func(text string) (codecs.Codec, error)) (Policy, error) {
	lossless, err := newCodec("lossless")
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	aggregate, err := newCodec(AggregateCodec)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p := &ruleList{lossless: lossless, aggregate: aggregate, text: lossless.String()}
	for i, r := range rules {
		c := compiled{Rule: r}
		if r.Codec != Verbatim {
			if c.codec, err = newCodec(r.Codec); err == nil {
				err = Check(c.codec)
			}
			if err != nil {
				return nil, fmt.Errorf("policy: rule %d: %w", i+1, err)
			}
			c.text = c.codec.String()
		}
		p.rules = append(p.rules, c)
	}
	return p, nil
}

// A Coding is a way in which rules have tensors travel.
type Coding struct {
	Codec string // its text, or Verbatim
	Role  tensor.Role
	Lossy bool
}

// A Lister is a Policy that can list the ways in which it may have tensors travel, such as one of rules.
type Lister interface{ Codings() []Coding }

// Codings lists the ways in which the rules may have tensors travel, as far as the rules name them.
func (p *ruleList) Codings() []Coding {
	var all []Coding
	for _, r := range p.rules {
		roles := r.Roles
		if len(roles) == 0 {
			roles = tensor.Roles()
		}
		for _, role := range roles {
			c := Coding{Codec: Verbatim, Role: role}
			if r.codec != nil {
				c.Codec, c.Lossy = r.text, codecs.Lossy(r.codec)
			}
			if c.Lossy && (role == tensor.Unknown || role == tensor.Exact) {
				continue // they lose nothing, whatever a rule says
			}
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// Choose returns the codec of the first rule that matches, made safe for the role, and says whether a lossless one
// pays. Lossy codecs are not asked: a rule has named them.
func (p *ruleList) Choose(f Flow, t tensor.Tensor, m Measured) Choice {
	c, text := p.match(f, t)
	if c.Codec == nil || codecs.Lossy(c.Codec) {
		return c
	}
	c.Watch = p.mayBecomeLossy(f, t)
	if m.History != nil && (!c.Watch || t.Base != 0) {
		c.NoGain = !m.History.Gains(text, m)
	}
	return c
}

// Saw notes the result in the tensor's history.
func (p *ruleList) Saw(_ Flow, _ tensor.Tensor, h *History, codec string, raw, wire int, took time.Duration) {
	h.Saw(codec, raw, wire, took)
}

// mayBecomeLossy reports whether t will lose something if it proves to be a gradient.
func (p *ruleList) mayBecomeLossy(f Flow, t tensor.Tensor) bool {
	if t.Why != tensor.Learning || t.Key == 0 || t.Keys != 0 {
		return false
	}
	t.Role, t.Why = tensor.Gradient, tensor.OK
	c, _ := p.match(f, t)
	return c.Codec != nil && codecs.Lossy(c.Codec)
}

// match returns the choice of the first rule that matches, and the text of its codec if that is lossless.
func (p *ruleList) match(f Flow, t tensor.Tensor) (c Choice, text string) {
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(f, t) {
			if r.codec != nil && !codecs.Lossy(r.codec) {
				return Choice{Codec: r.codec}, r.text
			}
			return p.safe(f, t, r.codec, &r.Rule), p.text
		}
	}
	return p.unruled(f, t), p.text
}

// unruled is the choice for a tensor that no rule matches.
func (p *ruleList) unruled(f Flow, t tensor.Tensor) Choice {
	switch {
	case tooSmall(t):
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

// tooSmall reports whether lossless coding makes t longer, with its header and its share of a frame.
func tooSmall(t tensor.Tensor) bool { return t.Size < MinBytes && (t.Base == 0 || t.Size < MinShared) }

// exact is the choice for a tensor whose rule has a lossy codec, and that must lose nothing, for a reason: the lossless
// codec where that makes it shorter. A tensor whose role is still learned is coded in any case, since its values are
// watched then.
func (p *ruleList) exact(t tensor.Tensor, why tensor.Reason) Choice {
	c := Choice{Codec: p.lossless, Why: cmp.Or(t.Why, why)}
	if tooSmall(t) && t.Why != tensor.Learning {
		c.Codec = nil
	}
	return c
}

// safe replaces a lossy codec by the lossless one, or by none, where the parser gives no proof that loss is allowed.
func (p *ruleList) safe(f Flow, t tensor.Tensor, c codecs.Codec, r *Rule) Choice {
	if c == nil || !codecs.Lossy(c) {
		return Choice{Codec: c}
	}
	unbiased := c.Traits().Unbiased
	switch {
	case unbiased && t.Role != tensor.Gradient:
		return p.exact(t, tensor.NoRule)
	case t.Role == tensor.State && slices.Contains(r.Roles, tensor.State) && t.Base != 0 && t.DType.Float():
		return Choice{Codec: c, Closed: true, Flush: r.FlushEvery}
	case t.Role != tensor.Gradient && !(t.Role == tensor.Aggregate && f.LossyAggregates), t.Key == 0:
		return p.exact(t, tensor.RoleUnproved)
	case !t.DType.Float():
		return p.exact(t, tensor.DTypeUnknown)
	}
	chosen := Choice{Codec: c, Feedback: !unbiased && !r.NoFeedback || t.Role == tensor.Aggregate}
	if chosen.Feedback {
		chosen.Flush = r.FlushEvery
	}
	return chosen
}
