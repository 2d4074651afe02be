package feedback

import "math"

// A Control watches the residual of one block from encoding to encoding. It measures some of the encodings, each on a
// sample of the elements. It moves the sparsity of an adaptive codec (codecs.Traits), and it is the guard of every
// codec: it says when the block should travel exactly for a while. It belongs to the caller, as the residual does. The
// zero Control has seen nothing.
//
// The sparsity begins at 1. The bound of the residual ratio, the norm of the residual over that of the value, begins at
// minRatio and grows with the age of the training, up to the codec's own bound: an update that comes late is lost to a
// training of a few hundred steps, and does no harm to one of many thousands. A change of the value's norm by a factor
// of 8 begins anew.
//
// The guard compares two measurements with their limits: the norm of the residual over that of the values of late, or
// over the usual one of many steps where that is larger; and the part of the delivered values that have the sign of the
// true ones, where the ratio is large as well. A value beyond a limit makes the next 16 values of the block travel
// exactly, the first of them with the residual; after another such value 32, and so on, at most
// 1024. Each 2,000 values or so that are within the limits (goodAfter measurements) halve the number again.
type Control struct {
	sparsity float32 // of the next encoding; 0: 1
	value    float32 // mean square of the values of late; 0: none was measured
	usual    float32 // the same over a longer time
	lost     float32 // mean square of the residual
	agree    float32 // part of the delivered values that have the sign of the true ones
	age      uint32  // encodings since the beginning, or since the value's norm changed
	good     uint16  // measurements since the guard last acted
	exact    uint16  // values that are still to travel exactly
	trips    uint16  // how often the guard acted of late
}

const (
	minRatio   = 2.0   // bound of the residual ratio of a young training,
	ratioSteps = 200.0 // and how many steps it takes to grow by 1
	maxS       = 1.9   // of sparsity

	recent   = 0.25      // weight of the newest measurement
	rarely   = 1.0 / 64  // the same in usual
	newScale = 8.0 * 8.0 // change of the mean square that begins anew

	guardRatio  = 16.0 // limit of the residual ratio of codecs that do not adapt; of others twice their bound
	guardUnlike = 8.0  // residual ratio from which the signs count
	guardAgree  = 0.6  // limit of the signs that agree
	guardAfter  = 8    // measurements until the guard acts
	guardValues = 16   // that travel exactly at first
	maxTrips    = 6    // doublings of them
	goodAfter   = 256  // measurements that undo a doubling

	everyFirst  = 16 // encodings that are all measured; then one in so many
	measured    = 8
	sampleRun   = 16 // elements side by side in a sample,
	sampleMin   = 4  // how many such runs a sample has,
	sampleMax   = 64
	sampleApart = 256 // and one element in how many, between the two
)

// Sparsity returns the sparsity of an adaptive codec's next encoding.
func (c *Control) Sparsity() float32 { return max(c.sparsity, 1) }

// Ratio returns the residual ratio as measured of late.
func (c *Control) Ratio() float64 {
	if c.lost == 0 || c.value == 0 {
		return 0
	}
	return math.Sqrt(float64(c.lost) / float64(c.value))
}

// Exact reports whether the next value of the block should travel exactly, with its residual, and counts it.
func (c *Control) Exact() bool {
	if c.exact == 0 {
		return false
	}
	c.exact--
	return true
}

// Due notes an encoding and reports whether it should be measured. Only owners that measure by themselves call it
// ([Sample]).
func (c *Control) Due() bool {
	c.age++
	return c.age <= everyFirst || c.age%measured == 0
}

// Saw takes in a measurement. bound is that of the codec; 0: it does not adapt.
func (c *Control) Saw(s Sample, bound float64) {
	if s.n == 0 {
		return
	}
	value, lost := float32(s.value/float64(s.n)), float32(s.lost/float64(s.n))
	if !(value > 0 && value <= math.MaxFloat32/newScale && lost <= math.MaxFloat32/newScale) { // squares beyond float32, or no values
		return
	}
	agree := float32(1)
	if s.delivered > 0 {
		agree = float32(s.sign) / float32(s.delivered)
	}
	if c.value == 0 {
		c.value, c.usual, c.lost, c.agree = value, value, lost, agree
	}
	before := c.value
	c.value += recent * (value - c.value)
	switch {
	case c.value > newScale*c.usual: // not of one value alone: gradients of small batches differ as much
		c.begin()
	case value*newScale < c.usual && before*newScale >= c.usual: // the residual of larger values is too much for this one
		c.value = value
		c.restart()
	}
	c.usual += rarely * (value - c.usual)
	c.lost += recent * (lost - c.lost)
	c.agree += recent * (agree - c.agree)
	c.adapt(bound)
	c.watch(bound)
}

// begin begins anew at a larger scale.
func (c *Control) begin() {
	c.usual = c.value
	c.restart()
}

// restart begins anew with a sparsity of 1. The usual value stays: near the end of a training gradients of 1/1000 of
// the usual norm come and go, and the residual of the others is no lag behind them.
func (c *Control) restart() { c.age, c.sparsity, c.good = 0, 1, min(c.good, 1) }

// adapt moves the sparsity, with steps that are so small that the residual follows.
func (c *Control) adapt(bound float64) {
	if bound == 0 || c.Ratio() == 0 {
		return
	}
	bound = min(bound, max(minRatio, float64(c.age)/ratioSteps))
	step := min(max(0.4*math.Log(bound/c.Ratio()), -0.6), 0.2)
	s := float64(c.Sparsity())
	grown := s / (2 - s) * math.Exp(step) // the residual grows about as that
	c.sparsity = float32(min(max(2*grown/(1+grown), 1), maxS))
}

// Limit returns the limit of the guard: the residual ratio beyond which the block travels exactly for a while. bound is
// that of the codec; 0: it does not adapt.
func Limit(bound float64) float64 {
	if bound > 0 {
		return 2 * bound
	}
	return guardRatio
}

// watch is the guard.
func (c *Control) watch(bound float64) {
	limit := Limit(bound)
	c.good++
	// Where gradients fluctuate from value to value, the residual of a large one is no lag behind the small one after
	// it.
	r := math.Sqrt(float64(c.lost) / float64(max(c.value, c.usual)))
	switch {
	case c.good < guardAfter:
	case r > limit, r > guardUnlike && c.agree < guardAgree:
		c.trip()
	case c.good >= goodAfter:
		c.good, c.trips = guardAfter, c.trips-min(c.trips, 1)
	}
}

// trip has the values that follow travel exactly. The residual is zero afterwards.
func (c *Control) trip() {
	c.exact = guardValues << c.trips
	c.trips = min(c.trips+1, maxTrips)
	c.good, c.lost, c.agree, c.sparsity, c.age = 0, 0, 1, 1, 0
}

// controlled is Append under a Control.
func (e *Encoder) controlled(dst []byte, x, residual []float32, c *Control) ([]byte, error) {
	if e.adaptive != nil && e.bound > 0 {
		e.adaptive.SetSparsity(c.Sparsity())
	}
	if !c.Due() || e.n == 0 {
		return e.fused.AppendFeedback(dst, x, residual, e.dtype)
	}
	// Runs at even distances, elsewhere at each measurement.
	runs := min(max(sampleMin, e.n/(sampleApart*sampleRun)), sampleMax, e.n)
	apart := e.n / runs
	length := min(sampleRun, apart)
	from := int(c.age) * sampleRun % (apart - length + 1)
	var before [sampleMax * sampleRun]float32
	for i := range runs {
		copy(before[i*sampleRun:], residual[from+i*apart:][:length])
	}
	out, err := e.fused.AppendFeedback(dst, x, residual, e.dtype)
	if err != nil {
		return out, err
	}
	var s Sample
	for i := range runs {
		s.Add(x[from+i*apart:][:length], before[i*sampleRun:][:length], residual[from+i*apart:][:length])
	}
	c.Saw(s, e.bound)
	return out, nil
}
