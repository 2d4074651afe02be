package gloo

import "slices"

// notRing stands for the length of a message that is not of an all-reduce.
const notRing = -1

// A cut says which messages of a step belong to the same all-reduce. The zero cut says that they are not known.
type cut struct {
	phase int // 1 or 2; 0: not known, or none
	at    int // place in its collective
	count int // of that collective's messages
	size  int // bytes of its tensor; 0: the collective is not known
}

// Bounds of cutRings.
const (
	cutBudget    = 1 << 16 // messages compared, for one stretch
	allBudget    = 1 << 20 // messages looked at, in all
	maxRotations = 256     // begins tried where no place is sure to be one
)

// cutRings cuts the messages of a step, which may begin in the middle of an all-reduce, into all-reduces as a rank
// sends them by the plans of low to high ranks. It tries all ways to do that. A message has a phase only if it has the
// same phase in every way, and a collective only if it has the same collective in every way. cutRings returns false if
// there is no way, or if there are too many to try.
func cutRings(lengths []int, low, high int) ([]cut, bool) {
	r := rings{lengths: lengths, budget: allBudget}
	stretches, rotations := r.stretches()
	for n := low; n <= high; n++ {
		for rank := range n {
			for s := range rotations {
				r.try(n, rank, stretches, s)
			}
		}
	}
	return r.merged, r.merged != nil && r.budget > 0
}

// rings is the search for cuts.
type rings struct {
	lengths []int
	merged  []cut // of all ways so far, nil: none
	budget  int
}

// A stretch is count messages from begin on, which may pass the end.
type stretch struct{ begin, count int }

// stretches splits the step at the messages at which a collective is sure to begin. If there are none, the step is one
// stretch, which may begin at any of the first rotations messages.
func (r *rings) stretches() (all []stretch, rotations int) {
	total := len(r.lengths)
	for i := range total {
		if r.border(i) {
			if n := len(all); n > 0 {
				all[n-1].count = i - all[n-1].begin
			}
			all = append(all, stretch{begin: i})
		}
	}
	if len(all) == 0 {
		return []stretch{{0, total}}, min(total, maxRotations)
	}
	last := &all[len(all)-1]
	last.count = total - last.begin + all[0].begin
	return slices.DeleteFunc(all, func(s stretch) bool {
		return s.count == 1 && r.length(s.begin) < crumb // nothing to find out
	}), 1
}

func (r *rings) length(i int) int { return r.lengths[i%len(r.lengths)] }

// border reports whether a collective is sure to begin at message i, whatever the number of ranks: the last segment of
// a plan is shorter than the others by less than an element for each segment.
func (r *rings) border(i int) bool {
	a, b := r.length(i+len(r.lengths)-1), r.length(i)
	if a == notRing || b == notRing || a < crumb && b < crumb { // the first message of a collective that matters is longer
		return true
	}
	slack := 8 * 2 * maxRanks
	if max(a, b) > maxSegment*2/3 {
		slack = 1 << 17
	}
	return max(a, b)-min(a, b) > slack
}

// try looks for all ways in which one rank of n sends the stretches, and keeps the cuts that these have in common.
func (r *rings) try(n, rank int, stretches []stretch, shift int) {
	if r.budget <= 0 {
		return
	}
	found := make([][]cut, 0, len(stretches))
	for _, s := range stretches {
		r.budget -= s.count
		s.begin += shift
		cuts, ok := r.ways(n, rank, s)
		if !ok {
			return
		}
		found = append(found, cuts)
	}
	all := make([]cut, len(r.lengths))
	for i, s := range stretches {
		for k, c := range found[i] {
			all[(s.begin+shift+k)%len(all)] = c
		}
	}
	if r.merged == nil {
		r.merged = all
		return
	}
	for i, c := range all {
		r.merged[i] = r.merged[i].meet(c)
	}
}

// ways looks for all ways in which one rank of n sends a stretch, and returns the cuts that these have in common. It
// returns false if there is no way.
func (r *rings) ways(n, rank int, s stretch) ([]cut, bool) {
	budget := cutBudget                // comparisons that are left
	edges := make([][]plan, s.count)   // all-reduces that can begin at a message
	reached := make([]bool, s.count+1) // some way leads from the begin to here
	reached[0] = true
	for i := range s.count {
		if !reached[i] {
			continue
		}
		if r.length(s.begin+i) < crumb { // not of an all-reduce, or of one too small to matter
			reached[i+1] = true
			continue
		}
		edges[i] = r.plans(n, rank, s, i, &budget)
		if i == 0 && len(edges[i]) == 0 && budget > 0 {
			return nil, false
		}
		for _, p := range edges[i] {
			reached[i+p.messages()] = true
		}
	}
	r.budget -= cutBudget - budget
	cuts := make([]cut, s.count)
	if budget <= 0 {
		return cuts, true // not all ways were tried, so nothing is sure
	}
	set := make([]bool, s.count)
	meet := func(i int, c cut) {
		if set[i] {
			c = cuts[i].meet(c)
		}
		cuts[i], set[i] = c, true
	}
	leads := make([]bool, s.count+1) // some way leads from here to the end
	leads[s.count] = true
	for i := s.count - 1; i >= 0; i-- {
		if !reached[i] {
			continue
		}
		if r.length(s.begin+i) < crumb && leads[i+1] {
			leads[i] = true
			meet(i, cut{})
		}
		for _, p := range edges[i] {
			if !leads[i+p.messages()] {
				continue
			}
			leads[i] = true
			for k := range p.messages() {
				phase := 1
				if k >= p.phase() {
					phase = 2
				}
				meet(i+k, cut{phase: phase, at: k, count: p.messages(), size: p.size})
			}
		}
	}
	return cuts, leads[0]
}

// plans returns the plans of the all-reduces that one rank of n can send from message i of a stretch on.
func (r *rings) plans(n, rank int, s stretch, i int, budget *int) []plan {
	var found []plan
	for perRank := 2; perRank <= maxPerRank(r.length(s.begin+i)) && *budget > 0; perRank++ {
		count := 2 * (n - 1) * perRank
		if count > s.count-i {
			break
		}
		p, ok := match(n, rank, count, func(k int) int {
			*budget--
			return r.length(s.begin + i + k)
		})
		if ok {
			found = append(found, p)
		}
	}
	return found
}

// meet returns what c and d have in common.
func (c cut) meet(d cut) cut {
	if c == d {
		return c
	}
	if c.phase != d.phase {
		c.phase = 0
	}
	return cut{phase: c.phase}
}
