package gloo

import "github.com/gradproxy/gradproxy/tensor"

// minElements is the minimum number of elements of a sum that can be a gradient. Smaller sums are flags, counts and
// losses.
const minElements = 1000

// A reading holds the facts that are known about a message of an all-reduce at its first byte.
type reading struct {
	key      uint64 // of its collective, 0: unknown
	learning bool   // its step has not passed twice, whole
	strays   bool   // it is not the message that the step let expect
	ruledOut bool   // it cannot be a gradient
	contest  bool   // it may be a bucket, or another all-reduce of a bucket's size
	tiny     bool
	size     int // bytes of the whole tensor, at least
	phased   bool
	first    bool         // phase 1, if phased
	width    int          // bytes of an element, as a model's layout proves; 0: unknown
	called   tensor.DType // of the process's call; NoDType: unknown
	verdicts verdicts
}

// dtype returns the type of the elements, or NoDType if it is not known. The verdicts on two values must agree. If the
// width is proved, one verdict is enough; for the wider types it is enough that no verdict says otherwise. A type that
// a call tells needs no verdict.
func (r *reading) dtype() tensor.DType {
	if r.called != tensor.NoDType {
		return r.called
	}
	v := r.verdicts[0]
	switch r.width {
	case 0:
		if v != r.verdicts[1] {
			return tensor.NoDType
		}
	case 4:
		if v == noEvidence {
			v = isFloat32
		}
	case 8:
		if v == noEvidence {
			v = isFloat64
		}
	}
	if d := v.dtype(); r.width == 0 || d.Size() == r.width {
		return d
	}
	return tensor.NoDType
}

// role returns the role and the type of the message, and the reason if one of them is unknown. sums says whether the
// job's configuration or the process's call makes this a sum of gradients, which nothing on the wire proves.
func (r *reading) role(sums bool) (tensor.Role, tensor.DType, tensor.Reason) {
	d := r.dtype()
	if r.strays {
		d = tensor.NoDType
	}
	why := tensor.OK
	if d == tensor.NoDType {
		why = tensor.DTypeUnknown
	}
	switch {
	case !sums:
		return tensor.Unknown, d, tensor.RoleUnproved
	case r.tiny, r.ruledOut:
		return tensor.Exact, d, why
	case r.contest:
		return tensor.Unknown, d, tensor.Contested
	case r.strays:
		return tensor.Unknown, d, tensor.RoleUnproved
	case r.learning:
		return tensor.Unknown, d, tensor.Learning
	case d == tensor.NoDType, r.size/d.Size() < minElements:
		return tensor.Exact, d, why
	case r.phased && r.first:
		return tensor.Gradient, d, why
	}
	return tensor.Aggregate, d, why
}

// A look is how closely a message is examined for the type of its elements.
type look uint8

const (
	lookAway    look = iota
	lookOnce         // a small sample, to confirm
	lookClosely      // a large sample, and all of the message where the sample is zero
)
