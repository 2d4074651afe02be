package gloo

// FSDP's steps may have a sum of something else now and then: statistics every hundred steps. Such an extra all-reduce is left out where steps are
// learnt, or the sequence would be a hundred steps long.
//
// A step of several equal layers with something after them has the same all-reduces. If its layers passed for one tensor, the residual of one layer would be added to another one. But
// FSDP gathers all weights between the sums of one step and the sums of the next. So all-reduces are extra if
//
//   - the two around them stand side by side in another place;
//   - in both places as many weights are gathered between the two as are summed from the one place to the other, which then is a step;
//   - fewer are gathered between any two sums within that step;
//   - and they have another size than all sums of the step and all that is gathered beside them: what has not, is part of the model.
//
// Whatever else comes between does not count: barriers, broadcasts, gathers of objects, the gathers of an evaluation.
//
// A model of one unit has one all-reduce a step, so that no step has two to compare. With a sum in each third step its collectives look like one step of three equal
// layers, each gathered after its sum, with something after them. So there the sequence is three steps long.

const (
	// extraReach is how many all-reduces away that other place may be.
	extraReach = 128
	// extraRun is how many extra all-reduces there may be side by side.
	extraRun = 4
)

// A gap is two all-reduces by their indices; those between them, if there are any, are extra, or may be.
type gap struct{ from, to int }

// findExtras notes which all-reduces are extra, now that all-reduce i has begun, and reports whether there are any more. The one before it is looked at once
// more, since gathers may have passed only now.
func (c *counted) findExtras(i int) (more bool) {
	known := c.extras
	for _, both := range [...]bool{false, true} { // whether both gaps have extra all-reduces within, as where each step has another one
		for _, newest := range [...]int{i, i - 1} {
			if newest >= 2 && c.extras == known {
				c.compareGaps(newest, both)
			}
		}
	}
	return c.extras > known
}

// compareGaps compares the gaps that end with an all-reduce with those before.
func (c *counted) compareGaps(newest int, both bool) {
	c.eachGap(newest, func(late gap, plain bool) {
		for to := late.from; to > max(0, newest-extraReach) && c.budget > 0; to-- {
			if c.budget--; c.history[to].extra || c.history[to].first != c.history[newest].first {
				continue
			}
			c.eachGap(to, func(early gap, plainToo bool) {
				if plain != plainToo || both && !plain {
					c.noteExtras(early, late)
				}
			})
		}
	})
}

// eachGap calls f with the gaps that end with an all-reduce: first with the plain one, within which all are extra.
func (c *counted) eachGap(to int, f func(g gap, plain bool)) {
	from := to
	for run := 0; run <= extraRun && from > 0; run++ {
		for from--; from >= 0 && c.history[from].extra; from-- {
		}
		if from >= 0 {
			f(gap{from, to}, run == 0)
		}
	}
}

// noteExtras notes the all-reduces within two gaps as extra if they are.
func (c *counted) noteExtras(early, late gap) {
	if c.history[early.from].first != c.history[late.from].first || !c.same(late.from, early.from) || !c.isStep(early, late) {
		return
	}
	for _, g := range [...]gap{early, late} {
		for j := g.from + 1; j < g.to; j++ {
			if e := &c.history[j]; !e.extra && e.first >= crumb && c.isPart(e, early, late) {
				return
			}
		}
	}
	for _, g := range [...]gap{early, late} {
		for j := g.from + 1; j < g.to; j++ {
			if e := &c.history[j]; !e.extra {
				e.extra = true
				c.extras++
			}
		}
	}
}

// isPart reports whether an all-reduce within one of two gaps may be of the model: another sum from the one gap to the other has its size, or something that is gathered
// in the gaps.
func (c *counted) isPart(e *observedReduce, early, late gap) bool {
	for x := early.from; x <= late.to; x++ {
		within := early.from < x && x < early.to || late.from < x && x < late.to
		if o := &c.history[x]; !o.extra && !within && o.first == e.first {
			return true
		}
	}
	return c.within(early).gathersOf(e.lengths.total)+c.within(late).gathersOf(e.lengths.total) > 0
}

// within returns the other collectives within a gap.
func (c *counted) within(g gap) collectives {
	return c.conn.others.between(c.history[g.from].tag, c.history[g.to].tag)
}

// isStep reports whether the all-reduces from the end of one gap to the beginning of the other are those of a step of FSDP: in both gaps as many weights are gathered as are
// summed in the step, and nowhere within the step as many as in a gap.
func (c *counted) isStep(early, late gap) bool {
	fewest, _ := c.within(early).gathers()
	if n, _ := c.within(late).gathers(); n < fewest {
		fewest = n
	}
	large, bytes := 0, 0
	for at, x := early.to, early.to; x <= late.from; x++ {
		e := &c.history[x]
		if c.budget--; e.extra {
			continue
		}
		if at != x {
			if n, _ := c.within(gap{at, x}).gathers(); n >= fewest {
				return false
			}
		}
		if at = x; e.first >= crumb {
			large, bytes = large+1, bytes+e.lengths.total
		}
	}
	if large == 0 || large > fewest || late.from == early.to {
		return false
	}
	for _, g := range [...]gap{early, late} {
		if _, size := c.within(g).gathers(); size < bytes/8 { // a sum sends its tensor twice, and its elements may be four times as wide
			return false
		}
	}
	return true
}

// repeating returns the indices of the all-reduces up to i that are not extra; i is the last of them. nil: none are.
func (c *counted) repeating(i int) []int {
	if c.extras == 0 {
		return nil
	}
	c.plain = c.plain[:0]
	for j := range i {
		if !c.history[j].extra {
			c.plain = append(c.plain, j)
		}
	}
	c.plain = append(c.plain, i)
	return c.plain
}

// inFirstStep reports whether all-reduce i belongs to the first step of a job that has gathered weights before its first sum: equal layers must not pass for steps
// there. The step is over once weights have been gathered again, as many as were summed, or once as many were summed as had been gathered before. Before
// the sum of one layer the weights of one other layer may be gathered for it.
func (c *counted) inFirstStep(i int) bool {
	if c.regathered || i == 0 {
		return !c.regathered
	}
	large := 0
	for j := range i {
		if c.history[j].first >= crumb {
			large++
		}
	}
	before, _ := c.conn.others.between(0, c.history[0].tag).gathers()
	again, _ := c.within(gap{i - 1, i}).gathers()
	c.regathered = before <= 1 || large >= before+extraRun || large > 1 && again >= max(2, min(large, before))
	return !c.regathered
}
