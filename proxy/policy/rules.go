package policy

import (
	"slices"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

type ruleList struct {
	rules    []compiled
	lossless codecs.Codec
}

type compiled struct {
	Rule
	codec codecs.Codec // nil: verbatim
}

// Choose returns the codec of the first rule that matches, made safe for the role.
func (p *ruleList) Choose(f Flow, t tensor.Tensor, _ Measured) (codecs.Codec, tensor.Reason) {
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(f, t) {
			return p.safe(r.codec, t)
		}
	}
	if t.Size < MinBytes {
		return nil, tensor.TooSmall
	}
	return p.lossless, tensor.NoRule
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
func (p *ruleList) safe(c codecs.Codec, t tensor.Tensor) (codecs.Codec, tensor.Reason) {
	if c == nil || !codecs.Lossy(c) {
		return c, tensor.OK
	}
	switch {
	case t.Role != tensor.Gradient:
		return p.lossless, cmpReason(t.Why, tensor.RoleUnproved)
	case !t.DType.Float():
		return p.lossless, cmpReason(t.Why, tensor.DTypeUnknown)
	}
	return c, tensor.OK
}

// cmpReason returns what the parser said of the tensor, or else why.
func cmpReason(said, why tensor.Reason) tensor.Reason {
	if said != tensor.OK {
		return said
	}
	return why
}
