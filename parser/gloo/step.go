package gloo

// A step is the sequence of all-reduces that a training step repeats: a learnt step, or the announced buckets of
// DistributedDataParallel. Collectives run two at a time and start in either order; their tags, which count them, tell
// them apart.
type step struct {
	reduces []expectedReduce
	next    int    // the index of the all-reduce expected next
	last    int    // the index of the all-reduce placed last, -1: none
	tag     uint32 // of the all-reduce placed last
	open    []int  // indices of all-reduces that were passed over and may still come, at most lookahead
	misses  int    // all-reduces in a row without a place or with other lengths than expected
	hits    int    // all-reduces in a row that were as expected
	longest int    // the greatest number of hits so far
	rounded bool   // the step does not begin again before its last all-reduce has come
}

// lookahead is the maximum of all-reduces of a step that may be overtaken.
const lookahead = 2

// An expectedReduce is one all-reduce of a step.
type expectedReduce struct {
	lengths  lengths // of its messages; none for a bucket
	elements uint64  // of a bucket
	width    int     // bytes of an element of a bucket, as the segments of its newest value show
	key      uint64
	tag      uint32 // of its newest value
	before   uint32 // of the value before that
	rounds   int    // values placed, or seen while the step was learnt
	verdicts verdicts
	contest  bool // a collective that is not this bucket has its size

	ranks     int // the number for which plan was made, 0: there is no plan
	plan      plan
	fits      bool   // lengths follow plan
	halves    bool   // some ring among halvesFor ranks has these lengths
	halvesFor [2]int // the smallest and the greatest number of ranks
	tiled     bool   // it is a bucket of a layout that was worked out
	only      plan   // the only plan with these lengths, if onlyMade is set; the zero plan: there may be several
	onlyMade  bool
}

// onlyPlan returns the plan of an all-reduce of a learnt step if only one plan has its lengths; else nil. If the number
// of ranks is not known, there is only one plan if no rank can have more than two segments.
func (r *expectedReduce) onlyPlan() *plan {
	if r.fits {
		return &r.plan
	}
	if !r.onlyMade {
		if n := ranksOf(r.lengths.count, r.lengths.at(0)); r.ranks == 0 && n > 0 {
			r.only, _ = r.lengths.plan(n)
		}
		r.onlyMade = true
	}
	if r.only.ranks == 0 {
		return nil
	}
	return &r.only
}

// late reports whether a later all-reduce than that of this tag has been placed.
func (s *step) late(tag uint32) bool { return s.last >= 0 && int32(tag-s.tag) < 0 }

// find calls place, or placeLate for an all-reduce that was overtaken.
func (s *step) find(tag uint32, fits func(*expectedReduce) bool) (q int, ok, sure bool) {
	if !s.late(tag) {
		return s.place(tag, fits)
	}
	q, ok, shifted := s.placeLate(tag, fits)
	return q, ok, ok && !shifted
}

// place finds the all-reduce of the step to which a tag belongs, if one fits, and expects the next one after it. If
// several fit, it is sure only of one whose tag is due.
func (s *step) place(tag uint32, fits func(*expectedReduce) bool) (q int, ok, sure bool) {
	best, alike := -1, 0
	for ahead := range min(lookahead+1, len(s.reduces)) {
		if s.rounded && s.next+ahead >= len(s.reduces) && ahead > 0 {
			break
		}
		q := (s.next + ahead) % len(s.reduces)
		if !fits(&s.reduces[q]) {
			continue
		}
		alike++
		if s.due(q, tag) {
			best, alike = q, 1
			break
		}
		if best < 0 {
			best = q
		}
	}
	if best < 0 {
		s.miss()
		return 0, false, false
	}
	for q := s.next; q != best; q = (q + 1) % len(s.reduces) {
		if s.open = append(s.open, q); len(s.open) > lookahead {
			s.open = append(s.open[:0], s.open[1:]...)
		}
	}
	s.put(best, tag)
	s.last, s.tag, s.next = best, tag, (best+1)%len(s.reduces)
	return best, true, alike == 1
}

// placeLate finds the all-reduce of the step to which the tag of an overtaken all-reduce belongs. All-reduces of the
// same lengths may have overtaken it before the order of their tags was known. Then each of them has taken the place of
// the one before it. In that case shifted is true, placeLate corrects the tags, and q is the place of the newest one,
// which was still free.
func (s *step) placeLate(tag uint32, fits func(*expectedReduce) bool) (q int, ok, shifted bool) {
	for i, q := range s.open {
		if fits(&s.reduces[q]) {
			s.open = append(s.open[:i], s.open[i+1:]...)
			s.put(q, tag)
			return q, true, false
		}
	}
	n := len(s.reduces)
	passed := 0 // all-reduces before next whose tags are later
	for passed < min(n-1, 2*lookahead) {
		it := &s.reduces[(s.next-1-passed+n)%n]
		if int32(it.tag-tag) < 0 || !fits(it) {
			break
		}
		passed++
	}
	if passed == 0 || s.rounded && s.next < passed || !fits(&s.reduces[s.next]) {
		return 0, false, false
	}
	s.put(s.next, s.tag)
	for k := range passed {
		it, before := &s.reduces[(s.next-1-k+n)%n], tag
		if k < passed-1 {
			before = s.reduces[(s.next-2-k+n)%n].tag
		}
		it.tag = before
	}
	s.last, s.next = s.next, (s.next+1)%n
	return s.last, true, true
}

// hit notes an all-reduce that was as expected.
func (s *step) hit() {
	s.hits++
	s.longest, s.misses = max(s.longest, s.hits), 0
}

// miss notes an all-reduce that was not as expected, or had no place.
func (s *step) miss() {
	s.misses++
	s.hits = 0
}

// put notes the newest value of all-reduce q.
func (s *step) put(q int, tag uint32) {
	it := &s.reduces[q]
	it.before, it.tag = it.tag, tag
	it.rounds++
}

// due reports whether the distance between tag and the tag that was placed last is the distance that all-reduce q had
// in the step before.
func (s *step) due(q int, tag uint32) bool {
	if s.last < 0 {
		return false
	}
	it, last := &s.reduces[q], &s.reduces[s.last]
	return it.rounds >= 1 && last.rounds >= 2 && q != s.last && tag-s.tag == it.tag-last.before
}
