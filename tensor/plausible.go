package tensor

import "bytes"

// These constants bound the difference between successive values of a sum of gradients. In DistributedDataParallel,
// with batches from 64 examples to nearly the whole data set, the change from one sum to the next was measured as 0.23
// to 2.5 of the sum's norm. Averaged weights, the other content of such all-reduces, changed by 0.03 to 0.13 of their
// norm after five local steps.
//
// The first weights that come in the place of gradients change much. Their norm is larger than that of the gradients.
// Where it is not much larger, the gradients are spiky, as gradients of mostly zero inputs are: their mean magnitude is
// 0.4 of their root mean square, and that of weights 0.8 to 0.87, like that of normal and of uniform values. Sums that
// have lost detail are spikier still, and their spikiness varies from one sum to the next.
const (
	maxNormRatio   = 4.0     // between the two values' norms, either way
	evenShape      = 0.75    // minimum mean magnitude over root mean square of weights
	evenerShape    = 1.5     // minimum ratio of that to the same of the last value, where weights follow gradients
	evenerNorm     = 1.5     // minimum ratio of the two norms there
	minChange      = 0.2     // minimum norm of the difference over the norm of the newer value
	freshChange    = 1.0     // minimum of the same for a fresh random value
	freshValues    = 3       // fresh values in a row that win trust
	maxFreshValues = 3 << 10 // maximum of them, after many losses of trust
	goodValues     = 16      // values that must pass, for each required fresh value, until an earlier loss of trust is forgotten
)

// Trust is the content check of one block of a tensor: it decides for each value of the block whether it may be coded
// with loss. It runs just before lossy coding, on facts that the parser could not have at the block's first byte. It
// refuses, and never proves.
//
// A value is plausible if it looks like the next sum of gradients after the last value: the two norms are within a
// factor of 4, the difference is not as small as between weights, and the magnitudes have not suddenly become as even
// as weights' magnitudes.
//
// Trust is earned: the zero Trust has none. Three fresh values in a row win it, and the value after them is the first
// that may lose something. A value is fresh if it is plausible, if it differs from the value before by its own norm or
// more, and if it fits in with the block's History and is like no value in it. Gradients of small batches are so.
// Averaged weights are fresh only where they move fast. A value that is not plausible ends trust. After the second loss
// of trust six fresh values are needed, after the third twelve, and at most 3072, so that a tensor that alternates
// between gradients and something else soon travels exactly. Once sixteen times as many values have passed, earlier
// losses are forgotten.
type Trust struct {
	earned bool
	fresh  uint16 // fresh values in a row
	need   uint16 // fresh values in a row that win trust, or have won it; it doubles with each loss; 0: freshValues, and trust was never lost
	good   uint16 // values that have passed since trust was won
}

// judge reports whether a value may be coded with loss.
func (t *Trust) judge(plausible, fresh bool) bool {
	switch {
	case t.earned:
		if !plausible {
			t.lose()
		} else if t.need > 0 {
			if t.good++; t.good >= goodValues*t.need {
				t.good, t.need = 0, 0
			}
		}
		return t.earned
	case plausible && fresh:
		if t.fresh++; t.fresh >= max(freshValues, t.need) {
			t.earned, t.fresh = true, 0
		}
	default:
		t.fresh = 0
	}
	return false
}

// Plausible reports whether block looks like the next sum of gradients after a last value, without regard to trust.
// kept holds the bytes that Keep kept of the last value; ok is false if there is nothing to compare, as Judge says. It
// changes neither.
func Plausible(d DType, block, kept []byte) (plausible, ok bool) {
	c, ok := compareKept(d, block, bytes.Clone(kept))
	return ok && c.plausible(), ok
}

// Presume wins trust for a tensor whose role has more than the user's word for it, unless trust was lost.
func (t *Trust) Presume() {
	if !t.earned && t.need == 0 {
		*t = Trust{earned: true}
	}
}

// lose ends trust, or the row of fresh values that were to win it.
func (t *Trust) lose() {
	if t.fresh = 0; t.earned {
		*t = Trust{need: min(max(freshValues, 2*t.need), maxFreshValues)}
	}
}

// Joint returns the trust of a block that lies over blocks with trust t and u: no more than either has.
func (t Trust) Joint(u Trust) Trust {
	joint := Trust{earned: t.earned && u.earned, need: max(t.need, u.need), good: min(t.good, u.good)}
	if !joint.earned {
		joint.good = 0
		switch {
		case t.earned:
			joint.fresh = u.fresh
		case u.earned:
			joint.fresh = t.fresh
		default:
			joint.fresh = min(t.fresh, u.fresh)
		}
	}
	return joint
}

func (c change) plausible() bool {
	const ratio = maxNormRatio * maxNormRatio
	return c.norm <= ratio*c.last && c.last <= ratio*c.norm && c.diff >= minChange*minChange*c.norm && !c.evener()
}

// evener reports whether the newer value looks like weights and the last one does not.
func (c change) evener() bool {
	// Each shape is the square of the mean magnitude over the root mean square.
	shape, lastShape := c.abs*c.abs/c.norm/float64(c.n), c.lastAbs*c.lastAbs/c.last/float64(c.n)
	return shape >= evenShape*evenShape && shape >= evenerShape*evenerShape*lastShape && c.norm >= evenerNorm*evenerNorm*c.last
}

func (c change) fresh() bool { return c.diff >= freshChange*freshChange*c.norm }
