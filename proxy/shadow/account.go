package shadow

import (
	"math/bits"
	"slices"
)

const (
	// settling is how many values of each connection do not count after the first that a candidate has coded.
	settling = 8
	// patience is how many values of a connection a candidate may take to be used at all; then they count as they
	// travel.
	patience = 24
	// still is how many times as large a residual may become, to have settled; larger the same of the encodings, of
	// which a residual that grows has more and more.
	still  = 1.25
	larger = 1.02
	// counted is how many values of each connection a window counts at least before another tensor may have its turn.
	counted = 24
	// windowValues is how many values of each connection a window has before another tensor may have its turn, where
	// residuals wait for the next window of the piece.
	windowValues = 64
	// waited is how many values of each connection do not count after the residual has waited.
	waited = 16
	// tired is how many values a window takes at most to settle before another tensor may have its turn.
	tired = 2048
)

// An account has the measures of one candidate in one window. A residual grows for a while, by few values under int8
// and by more than a hundred under a codec that drops nearly all elements, and while it grows the encodings are smaller
// than they will be. So the measures are summed apart for the values 9 to 16 of each connection, 17 to 32 and so on,
// and the values count from the first such period whose residual is hardly larger than that of the measured period
// before.
type account struct {
	values  int      // that were coded
	used    bool     // the candidate has coded one
	unused  period   // values that count though the candidate was not used
	periods []period // period i: values settling<<i + 1 to settling<<(i+1) of each connection
}

// A period is the sum of some values.
type period struct {
	Measure
	values int
}

// grown reports whether the residual has grown since an earlier period, and encodings with it.
func (p *period) grown(since *period) bool {
	return p.residual() > still*since.residual() && float64(p.Wire)*float64(since.Raw) > larger*float64(since.Wire)*float64(p.Raw)
}

func (p *period) add(m *Measure) {
	p.Measure.add(m)
	p.values++
}

// A count is how far one connection has come under one candidate.
type count struct {
	values int32 // that were coded
	used   int32 // since the first that the candidate has coded; 0: none
	passes int32 // values that come next and do not count
}

// add takes the measure of the next value of a connection, which has come as far as c says.
func (a *account) add(m *Measure, c *count) {
	a.values++
	c.values++
	if !m.Exact || c.used > 0 {
		c.used++
	}
	if c.passes > 0 {
		c.passes--
		return
	}
	if c.used == 0 {
		if c.values > patience {
			a.unused.add(m)
		}
		return
	}
	a.used = true
	i := bits.Len(uint((c.used-1)/settling)) - 1
	if i < 0 {
		return
	}
	for len(a.periods) <= i {
		a.periods = append(a.periods, period{})
	}
	a.periods[i].add(m)
}

// from returns the first period that counts: by no later period has the residual grown. Two periods may be alike by
// chance, so a later one may show that the residual was still growing. false: it grows, as far as is known.
func (a *account) from() (period int, settled bool) {
	last, loses := len(a.periods)-1, a.loses()
	for i := range a.periods {
		p := &a.periods[i]
		if p.Raw == 0 || loses && p.Measured == 0 { // where all blocks were guarded the period tells nothing of the residual
			continue
		}
		grows, later := false, p.Measured > 0 && p.residual() == 0 && i < last // differences of weights leave none
		for j := i + 1; j <= last; j++ {
			q := &a.periods[j]
			if q.Raw == 0 || loses && q.Measured == 0 || j == last && q.values < settling<<j/2 { // the last one may have only begun
				continue
			}
			later, grows = true, grows || q.grown(p)
		}
		if later && !grows {
			return i, true
		}
	}
	return max(0, last), false
}

// loses reports whether the candidate was seen to lose something, or would have but for the guard. A lossless one is
// never measured.
func (a *account) loses() bool {
	return slices.ContainsFunc(a.periods, func(p period) bool { return p.Measured > 0 || p.Behind > 0 })
}

// sum returns the sum of the values that count. While the residual grows they are the latest, and early.
func (a *account) sum() (sum Measure) {
	sum = a.unused.Measure
	from, settled := a.from()
	for i := from; i < len(a.periods); i++ {
		sum.add(&a.periods[i].Measure)
	}
	if !settled && len(a.periods) > 0 {
		sum.Early = sum.Raw
	}
	return sum
}

// enough reports whether enough values count for so many connections.
func (a *account) enough(lines int) bool {
	if a.values >= tired*lines {
		return true
	}
	n := a.unused.values
	if !a.used {
		return n >= counted*lines
	}
	from, settled := a.from()
	for i := from; i < len(a.periods); i++ {
		n += a.periods[i].values
	}
	return settled && n >= max(counted, 2*settling<<from)*lines
}
