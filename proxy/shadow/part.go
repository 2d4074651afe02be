package shadow

// A part has the results for one piece of a tensor, for the whole tensor, or for all pieces of a tensor with many.
// While the Trials have memory they keep the part's residuals from window to window, and the part keeps its accounts
// and the counts of its lanes, so that a residual that takes hundreds of values to settle does so over several windows.
// Shadow.figures guards sums, accounts and coded, which only the goroutine changes. The goroutine alone uses the rest.
type part struct {
	sums     []Measure // by candidate, up to the last fold; nil: there was no fold
	accounts []account // by candidate, of the values since the last fold; nil: there are none
	coded    []int     // by candidate, all values
	lanes    lanes
	values   int    // values in the present window
	windows  int    // windows since the last fold
	skipped  []bool // by candidate, whether it has no part in the present window
}

// begin begins a window. If the residuals of some candidates still grow, the other candidates, of which enough is
// known, leave three windows of four to them. Shadow.figures must be held.
func (p *part) begin(candidates int) {
	if p.accounts == nil {
		p.accounts, p.windows = make([]account, candidates), 0
	}
	if p.coded == nil {
		p.coded = make([]int, candidates)
	}
	p.values, p.skipped = 0, make([]bool, candidates)
	var settled []int
	for i := range p.accounts {
		if _, ok := p.accounts[i].from(); ok {
			settled = append(settled, i)
		}
	}
	if len(settled) < candidates && p.windows%4 != 0 {
		for _, i := range settled {
			p.skipped[i] = true
		}
	}
	p.windows++
}

// fold adds the accounts to the sums, and begins them anew. Shadow.figures must be held.
func (p *part) fold() {
	if p.accounts == nil {
		return
	}
	if p.sums == nil {
		p.sums = make([]Measure, len(p.accounts))
	}
	for i := range p.accounts {
		m := p.accounts[i].sum()
		p.sums[i].settle(&m)
	}
	p.accounts, p.lanes.left = nil, nil
}

// sum returns a candidate's sum over all windows. Shadow.figures must be held.
func (p *part) sum(candidate int) (sum Measure) {
	if p.sums != nil {
		sum = p.sums[candidate]
	}
	if p.accounts != nil {
		m := p.accounts[candidate].sum()
		sum.settle(&m)
	}
	return sum
}

// complete reports whether the window may end. If residuals wait for the next window it needs windowValues values of
// each connection; else enough of its own values must count for each candidate.
func (p *part) complete(waits bool) bool {
	lines := max(1, len(p.lanes.taken))
	if waits {
		return p.values >= windowValues*lines
	}
	for i := range p.accounts {
		if !p.accounts[i].enough(lines) {
			return false
		}
	}
	return len(p.accounts) > 0
}
