package shadow

// A part has the facts of one piece of a tensor, of the whole tensor, or of all pieces where they are many. While the
// Trials have memory its residuals wait from window to window, and so do its lanes' counts and its accounts: a residual
// that takes hundreds of values to settle does so over several windows. Shadow.figures guards sums, accounts and coded;
// only the goroutine changes them, and it alone uses the rest.
type part struct {
	sums     []Measure // by candidate, of windows that were folded; nil: none was
	accounts []account // by candidate, of the values since; nil: there are none
	coded    []int     // by candidate, values in all
	lanes    lanes
	values   int    // values in the present window
	windows  int    // windows since the last fold
	skipped  []bool // by candidate: it has no part in the present window
}

// begin begins a window. Where some candidates' residuals still grow, the others, of which enough is known, leave three
// windows of four to them. Shadow.figures is held.
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

// fold adds the measurements since the last fold to the sums, and begins anew. Shadow.figures is held.
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

// sum returns the sum of a candidate.
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

// complete reports whether the window may end. Where residuals wait for the next window it is one of some values, and
// else it must have counted enough by itself.
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
