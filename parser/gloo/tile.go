package gloo

// Bounds of tile.
const (
	tileSteps  = 1 << 14 // all-reduces that the search looks at
	tileChecks = 1 << 20 // ranks whose messages are compared with an all-reduce's, to find its sizes
)

// tile marks the all-reduces of a step that are the buckets of a model which has announced none. Such a model (one that
// looks for unused parameters) cuts its parameters in their order and sends the last cut first. The step may begin with
// any of reduces. Nothing is marked unless exactly one choice of all-reduces tiles the parameters.
func tile(reduces []expectedReduce, counts []uint64, ranks int) {
	t := tiling{reduces: reduces, ends: map[uint64]int{}, steps: tileSteps, checks: tileChecks}
	sum := uint64(0)
	for i, n := range counts {
		t.ends[sum] = i
		t.sums = append(t.sums, sum)
		sum += n
	}
	t.sums = append(t.sums, sum)
	for _, width := range widths {
		t.sizes = make([][]int, len(reduces))
		for q := range reduces {
			t.sizes[q] = reduces[q].sizes(ranks, width, &t.checks)
		}
		for start := range reduces {
			t.width, t.start = width, start
			t.search(0, len(counts), nil)
		}
	}
	if t.several || t.steps <= 0 || t.checks <= 0 {
		return
	}
	for _, q := range t.found {
		reduces[q].tiled = true
	}
}

// A tiling is the search for the all-reduces that are buckets.
type tiling struct {
	reduces []expectedReduce
	sums    []uint64       // the sum of the counts before each parameter
	ends    map[uint64]int // by sum: the parameter before which the counts have this sum
	width   int
	sizes   [][]int // in bytes, that each all-reduce can have
	start   int     // the index of the all-reduce that begins the step
	found   []int
	several bool
	steps   int
	checks  int
}

// search looks from the at-th all-reduce of the step on for buckets of the first left parameters.
func (t *tiling) search(at, left int, chosen []int) {
	if left == 0 {
		t.several = t.several || t.found != nil && !sameSet(t.found, chosen)
		t.found = append([]int(nil), chosen...)
		return
	}
	for ; at < len(t.reduces) && !t.several && t.steps > 0; at++ {
		t.steps--
		q := (t.start + at) % len(t.reduces)
		for _, size := range t.sizes[q] {
			elements := uint64(size / t.width)
			if elements > t.sums[left] {
				continue
			}
			if first, ok := t.ends[t.sums[left]-elements]; ok && first < left {
				t.search(at+1, first, append(chosen[:len(chosen):len(chosen)], q))
			}
		}
	}
}

// sizes returns the possible sizes, in bytes, of the tensor of an all-reduce among ranks if its elements have that
// width. The lengths of small tensors fit several sizes. sizes makes at most *checks comparisons, and subtracts their
// number from *checks.
func (it *expectedReduce) sizes(ranks, width int, checks *int) []int {
	if it.fits {
		if it.plan.size%width == 0 {
			return []int{it.plan.size}
		}
		return nil
	}
	l := &it.lengths
	if l.at(0) >= crumb || l.many || l.count == 0 || l.count > 2*2*maxRanks {
		return nil
	}
	var found []int
	about := l.total * ranks / (2 * (ranks - 1)) // a rank sends all segments twice, except the segments of two ranks
	slack := 4 * (l.total/l.count + 8)
	for size := max(width, (about-slack)/width*width); size <= about+slack && *checks > 0; size += width {
		p := planOf(size, width, ranks)
		for rank := range ranks {
			*checks--
			if p.sends(rank, l) {
				found = append(found, size)
				break
			}
		}
	}
	return found
}

// sends reports whether rank's messages have these lengths.
func (p plan) sends(rank int, l *lengths) bool {
	i := 0
	for k := range p.messages() {
		n := p.length(rank, k)
		if n == 0 {
			continue
		}
		if n != l.at(i) {
			return false
		}
		i++
	}
	return i == l.count
}

// sameSet reports whether a and b hold the same numbers; neither holds one twice.
func sameSet(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	in := map[int]bool{}
	for _, x := range a {
		in[x] = true
	}
	for _, x := range b {
		if !in[x] {
			return false
		}
	}
	return true
}
