package gloo

// A course is a sequence of collectives that is expected to come again and again: that of a training step, as learnt, or
// the buckets of DistributedDataParallel. Collectives run two at a time and start in either order; their tags, which
// count them, say which is which.
type course struct {
	items   []item
	next    int    // the item expected next
	last    int    // the item placed last, -1: none
	tag     uint32 // of that
	open    []int  // items that were passed over and may still come, at most lookahead
	misses  int    // collectives without a place, or unlike what was expected, since the last that was as expected
	hits    int    // collectives in a row that were as expected
	longest int    // the most hits there were
	rounded bool   // next does not pass the end of items while one before it is expected
}

// lookahead is how many items may be overtaken.
const lookahead = 2

// An item is one collective of a course.
type item struct {
	lengths  lengths // of its messages; none for a bucket
	elements uint64  // of a bucket
	width    int     // bytes of an element of a bucket, as its newest value's segments show
	key      uint64
	tag      uint32 // of its newest value
	before   uint32 // of the value before that
	rounds   int    // values placed, or seen while learning
	verdicts [2]verdict
	contest  bool // something else has its size

	ranks     int // for which plan was made, 0: none was
	plan      plan
	fits      bool   // lengths follow plan
	halves    bool   // lengths are those of some ring among halvesFor ranks
	halvesFor [2]int // the least and the most
	tiled     bool   // it is a bucket of a layout that was worked out
}

// judge notes the verdict on a value; one without evidence leaves things as they are.
func (it *item) judge(v verdict) {
	if v != noEvidence {
		it.verdicts[1], it.verdicts[0] = it.verdicts[0], v
	}
}

// late reports whether a collective of this tag was overtaken by one that has been placed.
func (c *course) late(tag uint32) bool { return c.last >= 0 && int32(tag-c.tag) < 0 }

// find is place, or placeLate for one that was overtaken.
func (c *course) find(tag uint32, fits func(*item) bool) (q int, ok, sure bool) {
	if !c.late(tag) {
		return c.place(tag, fits)
	}
	q, ok, shifted := c.placeLate(tag, fits)
	return q, ok, ok && !shifted
}

// place finds the item that a collective of this tag is, if there is one that fits, and expects what follows it. It is not
// sure of one of several that are alike unless the tag is due.
func (c *course) place(tag uint32, fits func(*item) bool) (q int, ok, sure bool) {
	best, alike := -1, 0
	for step := range min(lookahead+1, len(c.items)) {
		if c.rounded && c.next+step >= len(c.items) && step > 0 {
			break
		}
		q := (c.next + step) % len(c.items)
		if !fits(&c.items[q]) {
			continue
		}
		alike++
		if c.due(q, tag) {
			best, alike = q, 1
			break
		}
		if best < 0 {
			best = q
		}
	}
	if best < 0 {
		c.miss()
		return 0, false, false
	}
	for q := c.next; q != best; q = (q + 1) % len(c.items) {
		if c.open = append(c.open, q); len(c.open) > lookahead {
			c.open = append(c.open[:0], c.open[1:]...)
		}
	}
	c.put(best, tag)
	c.last, c.tag, c.next = best, tag, (best+1)%len(c.items)
	return best, true, alike == 1
}

// placeLate finds the item that a collective is which was overtaken by others. Where some that are alike have passed it
// before their tags could tell, each has been taken for the one before it: then shifted is true, and the newest one's
// item, which nobody was taken for, is returned.
func (c *course) placeLate(tag uint32, fits func(*item) bool) (q int, ok, shifted bool) {
	for i, q := range c.open {
		if fits(&c.items[q]) {
			c.open = append(c.open[:i], c.open[i+1:]...)
			c.put(q, tag)
			return q, true, false
		}
	}
	n := len(c.items)
	passed := 0 // items before next whose tags are later
	for passed < min(n-1, 2*lookahead) {
		it := &c.items[(c.next-1-passed+n)%n]
		if int32(it.tag-tag) < 0 || !fits(it) {
			break
		}
		passed++
	}
	if passed == 0 || c.rounded && c.next < passed || !fits(&c.items[c.next]) {
		return 0, false, false
	}
	c.put(c.next, c.tag)
	for k := range passed {
		it, before := &c.items[(c.next-1-k+n)%n], tag
		if k < passed-1 {
			before = c.items[(c.next-2-k+n)%n].tag
		}
		it.tag = before
	}
	c.last, c.next = c.next, (c.next+1)%n
	return c.last, true, true
}

// hit notes a collective that was as expected.
func (c *course) hit() {
	c.hits++
	c.longest, c.misses = max(c.longest, c.hits), 0
}

// miss notes one that was not, or had no place.
func (c *course) miss() {
	c.misses++
	c.hits = 0
}

// put notes item q's newest value.
func (c *course) put(q int, tag uint32) {
	it := &c.items[q]
	it.before, it.tag = it.tag, tag
	it.rounds++
}

// due reports whether item q has this tag if it is as far behind the last one placed as it was the time before.
func (c *course) due(q int, tag uint32) bool {
	if c.last < 0 {
		return false
	}
	it, last := &c.items[q], &c.items[c.last]
	return it.rounds >= 1 && last.rounds >= 2 && q != c.last && tag-c.tag == it.tag-last.before
}
