package gloo

import "github.com/gradproxy/gradproxy/tensor"

// minElements is the number of elements from which a sum is taken for a gradient. Smaller ones are flags, counts and
// losses.
const minElements = 1000

// A reading is what is known of a message of an all-reduce at its first byte.
type reading struct {
	key      uint64 // of its collective, 0: unknown
	learning bool   // the sequence it belongs to has not been seen whole twice
	strays   bool   // it is not what the sequence let expect
	ruledOut bool   // it cannot be a gradient
	tiny     bool
	size     int // bytes of the whole tensor, at least
	phased   bool
	first    bool       // phase 1, if phased
	width    int        // bytes of an element, as a model's layout proves; 0: unknown
	verdicts [2]verdict // on the two values before this one, the newer first
}

// dtype returns the type of the elements, NoDType if it is not known. Two values must have looked alike, but where the
// width is proved one that looked so, and for the wider types none that looked different.
func (r *reading) dtype() tensor.DType {
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

// role says what the message is. sums: the job's configuration says that its sums are gradients, without which
// nothing on the wire proves it.
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

// A look says how much of a message is examined for the type of its elements.
type look uint8

const (
	lookAway    look = iota
	lookOnce         // at a small sample, to confirm
	lookClosely      // at a large one, and everywhere where that is zero
)
