package shadow

import (
	"math/bits"
	"slices"
)

const (
	// settling is the number of values of each connection that do not count, from the first one on that the candidate
	// has coded.
	settling = 8
	// patience is the number of values of a connection after which a candidate need not have been used for values to
	// count: then they count as they travel, coded by another codec.
	patience = 24
	// still and larger are factors. A residual grows if it has become more than still times as large, and with it the
	// encodings more than larger times as large; else it has settled.
	still  = 1.25
	larger = 1.02
	// counted is the minimum of values of each connection that a window counts before another tensor may have its turn.
	counted = 24
	// windowValues is the number of values of each connection in a window before another tensor may have its turn, if
	// the residuals wait for the piece's next window.
	windowValues = 64
	// waited is the number of values of each connection that do not count after the residual has waited.
	waited = 16
	// tired is the number of values of each connection after which another tensor may have its turn though the residual
	// has not settled.
	tired = 2048
)

// An account has the measures of one candidate in one window, or in several windows of a piece whose residual waits. A
// residual grows for a while: for few values under int8, and for more than a hundred under a codec that drops nearly
// all elements. While it grows the encodings are smaller than they will be. So there is a sum of its own for the values
// 9 to 16 of each connection, for 17 to 32, and so on. The values count from the first such period on after which the
// residual no longer grows (see from).
type account struct {
	values  int      // that were coded
	used    bool     // the candidate has coded one
	unused  period   // values that count though the candidate was not used (patience)
	periods []period // period i: values settling<<i + 1 to settling<<(i+1) of each connection
}

// A period is the sum of the measures of some values.
type period struct {
	Measure
	values int
}

// grown reports whether the residual has grown since an earlier period, and the encodings with it.
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
	used   int32 // values from the first one on that the candidate has coded; 0: it has coded none
	passes int32 // how many of the next values do not count
}

// add takes the measure of the next value of a connection, whose count is c.
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

// from returns the first period that counts: the residual has not grown from it to any later period. All later periods
// are asked, since two periods may be alike by chance while the residual still grows. settled is false if the residual
// still grows as far as the account shows; then period is the last one.
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

// loses reports whether the candidate has lost something, or would have without the guard. A block of a lossless
// candidate is never measured.
func (a *account) loses() bool {
	return slices.ContainsFunc(a.periods, func(p period) bool { return p.Measured > 0 || p.Behind > 0 })
}

// sum returns the sum of the values that count. While the residual grows these are the values of the latest period, and
// they are early.
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

// enough reports whether the values that count are enough for a window of so many connections (lines).
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
