package policy

import (
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Staging is a list of codecs to which tensors move, in order, as something runs out.
type Staging struct {
	Peer, Job string   // whose tensors; "": any
	Codecs    []string // texts; the last loses most
	// At returns how many of Codecs have had their turn: 0 means none, 1 that the first one is in force. It is called
	// for each value.
	At func() int
}

// A staged policy is another policy until a Staging comes into force.
type staged struct {
	Policy
	stagings []staging
}

type staging struct {
	Staging
	rules []*ruleList // by codec
	texts []string    // of the codecs, in one spelling
}

// Staged returns base with stagings: a gradient that no rule of base matches, or a tensor for which a rule has a lossy
// codec, travels by the codec of the stage that is in force, if that may lose something by the tensor's role, and if it
// comes later in the list than the rule's. All that a rule keeps lossless or verbatim stays so, and so do weights and
// sums that no rule lets lose something: a list of codecs names no roles.
func Staged(base Policy, list []Staging, newCodec func(text string) (codecs.Codec, error)) (Policy, error) {
	if len(list) == 0 {
		return base, nil
	}
	s := &staged{Policy: base}
	for _, x := range list {
		compiled := staging{Staging: x}
		for _, text := range x.Codecs {
			p, err := New([]Rule{{Roles: []tensor.Role{tensor.Gradient, tensor.Aggregate, tensor.State}, MinBytes: MinBytes, Codec: text}}, newCodec)
			if err != nil {
				return nil, err
			}
			rules := p.(*ruleList)
			compiled.rules = append(compiled.rules, rules)
			compiled.texts = append(compiled.texts, rules.rules[0].text)
		}
		s.stagings = append(s.stagings, compiled)
	}
	return s, nil
}

// Choose asks base, and the stages in force.
func (s *staged) Choose(f Flow, t tensor.Tensor, m Measured) Choice {
	c := s.Policy.Choose(f, t, m)
	for i := range s.stagings {
		if x := &s.stagings[i]; (x.Peer == "" || x.Peer == f.Peer) && (x.Job == "" || x.Job == f.Job) {
			c = x.choose(c, f, t, m)
		}
	}
	return c
}

func (x *staging) choose(c Choice, f Flow, t tensor.Tensor, m Measured) Choice {
	at := min(x.At(), len(x.rules))
	lossy := c.Codec != nil && codecs.Lossy(c.Codec)
	if at <= 0 || !lossy && (c.Why == tensor.OK || t.Role == tensor.State || t.Role == tensor.Aggregate) {
		return c
	}
	if lossy && slices.Index(x.texts, c.Codec.String()) >= at-1 {
		return c
	}
	m.History = nil // base has asked whether lossless coding pays, and each answer counts
	alt := x.rules[at-1].Choose(f, t, m)
	if alt.Codec == nil || !codecs.Lossy(alt.Codec) {
		c.Watch = c.Watch || alt.Watch
		return c
	}
	if lossy {
		alt.Flush = c.Flush // the rule's promise of exact values holds
	}
	return alt
}

// Saw tells base.
func (s *staged) Saw(f Flow, t tensor.Tensor, h *History, codec string, raw, wire int, took time.Duration) {
	s.Policy.Saw(f, t, h, codec, raw, wire, took)
}

// Codings lists the ways of base, and of all stages.
func (s *staged) Codings() []Coding {
	var all []Coding
	if base, ok := s.Policy.(Lister); ok {
		all = base.Codings()
	}
	for _, x := range s.stagings {
		for _, r := range x.rules {
			for _, c := range r.Codings() {
				if !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}
