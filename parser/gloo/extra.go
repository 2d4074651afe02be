package gloo

import "slices"

// FSDP's steps may have sums of something else now and then: statistics every hundred steps. Such extra all-reduces are
// left out where steps are learnt, or the sequence would be a hundred steps long.
//
// A step of several equal layers with something after them has the same all-reduces. If its layers passed for one
// tensor, the residual of one layer would be added to another one. But FSDP gathers all weights in each step, and tags
// count all collectives, so at least as many of the counted ones must be others as there are all-reduces. Gathers
// before the first layer, or of the last one's weights, have tags too. So a run of all-reduces is extra if the two
// around it are as far apart by their tags as the same two in another step, apart from the run itself, and no two of a
// step are as far apart: between steps FSDP gathers the weights of the whole model, and so at least once for each
// all-reduce of the step. Short collectives, such as gathers of objects beside an extra sum, do not count, nor do
// barriers, nor gathers of larger objects, which come just after the gather of their sizes and have lengths of their
// own.
//
// FSDP gathers the weights of the next block before it sums the gradients of one. So between the sums of the last two
// blocks of a step nothing is gathered, and between no two sums where the weights of the forward pass are kept: there
// the first of equal blocks is as far from the next one as an extra sum would be. So an all-reduce with the lengths of
// one of the two around the run is not extra.
//
// A model of one unit has one all-reduce a step, so that no step has two to compare. With a sum in each third step its
// collectives look like one step of three equal layers, each gathered after its sum, with something after them. So
// there the sequence is three steps long.

const (
	extraReach = 128 // all-reduces away that other step may be
	maxRun     = 4   // extra all-reduces side by side
)

// findExtras notes which all-reduces are extra, now that all-reduce i has begun: the ones before it, or a run that
// stands where i and the one before stand side by side.
func (c *counted) findExtras(i int) {
	for run := 1; run <= maxRun; run++ {
		j := i - run
		for k := j - 2; k >= max(0, i-extraReach) && c.budget > 0; k-- {
			c.noteExtra(j, run, k)
		}
		for j := i - run - 2; j >= max(1, i-extraReach) && c.budget > 0; j-- {
			c.noteExtra(j, run, i-1)
		}
	}
}

// noteExtra notes a run of all-reduces that begins with j as extra if the two around it are as k and the one after k.
func (c *counted) noteExtra(j, run, k int) {
	if j < 1 {
		return
	}
	before, after, last, next := &c.history[j-1], &c.history[j+run], &c.history[k], &c.history[k+1]
	if before.first != last.first || after.first != next.first {
		return
	}
	stays := func(e observedReduce) bool { return e.extra || e.first == last.first || e.first == next.first }
	if c.budget--; slices.ContainsFunc(c.history[j:j+run], stays) || !c.same(max(k, j-1), min(k, j-1)) {
		return
	}
	from, to := min(k, j-1), max(k, j-1)
	others := c.conn.others
	between := others.elapsed(last.tag, next.tag) // of two steps
	apart := others.elapsed(before.tag, after.tag)
	if apart > between+uint32(run) {
		first, end := last.tag, before.tag
		if k > j-1 {
			first, end = after.tag, next.tag
		}
		apart -= others.objects(before.tag, after.tag, first, end)
	}
	if apart != between+uint32(run) {
		return
	}
	reduces, large, closer, at, skipped := uint32(0), uint32(0), false, c.history[from].tag, uint32(0)
	for x := from + 1; x <= to; x++ {
		if c.history[x].extra || x >= j && x < j+run {
			skipped++
			continue
		}
		gap := others.elapsed(at, c.history[x].tag) - skipped
		if at, skipped = c.history[x].tag, 0; gap > between {
			return
		}
		closer = closer || gap < between
		reduces++
		if c.history[x].first >= crumb {
			large++
		}
	}
	if closer && between > large && others.elapsed(c.history[from].tag, c.history[to].tag) >= 2*reduces {
		for x := range run {
			c.history[j+x].extra = true
		}
		c.extras += run
	}
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
