package gloo

import "slices"

// DistributedDataParallel begins with a broadcast of all parameters' shapes (torch/csrc/distributed/c10d/reducer.cpp,
// verify_params_across_processes): for each parameter in order its sizes, then its strides, as int64, and no mark of
// where a parameter ends. d numbers are sizes if the next d are the strides of a dense tensor of those sizes. Sizes of
// 1 make several cuts possible, so the search goes back, and the number of parameters, known from elsewhere, decides.

const (
	maxDims    = 8
	maxParams  = 1 << 16
	maxNumel   = 1 << 40 // elements of one parameter
	cutSteps   = 1 << 18 // of the search, over all
	cutAnswers = 64      // cuts looked at
)

// cutShapes returns the element counts of params parameters whose shapes the numbers are. It reports false if no cut or
// more than one set of counts fits, or the search takes too long. Parameters without dimensions leave no trace in the
// numbers and are not found.
func cutShapes(numbers []int64, params int) (counts []uint64, ok bool) {
	if params < 1 || params > maxParams || len(numbers) < 2*params || len(numbers) > 2*maxDims*params {
		return nil, false
	}
	s := cutter{numbers: numbers, dead: map[[2]int]bool{}, steps: cutSteps}
	s.search(0, params)
	return s.found, s.found != nil && !s.several && s.steps > 0
}

// A cutter is one search.
type cutter struct {
	numbers []int64
	stack   []uint64        // counts of the parameters cut so far
	dead    map[[2]int]bool // places, with the parameters left, from which no cut reaches the end
	found   []uint64
	several bool
	answers int
	steps   int
}

// search cuts left parameters out of the numbers from at on, and reports whether that is possible.
func (s *cutter) search(at, left int) bool {
	rest := len(s.numbers) - at
	if left == 0 {
		if rest != 0 {
			return false
		}
		s.answers++
		if s.found == nil {
			s.found = slices.Clone(s.stack)
		}
		s.several = s.several || s.answers > cutAnswers || !slices.Equal(s.found, s.stack)
		return true
	}
	if s.steps--; s.steps <= 0 || s.several || rest < 2*left || rest > 2*maxDims*left || s.dead[[2]int{at, left}] {
		return false
	}
	reached := false
	for d := 1; d <= maxDims && 2*d <= rest; d++ {
		n, ok := dense(s.numbers[at:at+d], s.numbers[at+d:at+2*d])
		if !ok {
			continue
		}
		s.stack = append(s.stack, n)
		if s.search(at+2*d, left-1) {
			reached = true
		}
		s.stack = s.stack[:len(s.stack)-1]
	}
	if !reached && s.steps > 0 && !s.several {
		s.dead[[2]int{at, left}] = true
	}
	return reached
}

// dense reports whether a tensor of these sizes and strides fills its memory, in whatever order of dimensions (weights
// in channels-last order have permuted strides), and returns its element count.
func dense(sizes, strides []int64) (uint64, bool) {
	total := int64(1)
	for _, n := range sizes {
		if n < 1 || total > maxNumel/n {
			return 0, false
		}
		total *= n
	}
	var order [maxDims]int
	dims := order[:0]
	for i, n := range sizes {
		if strides[i] < 1 || strides[i] > total {
			return 0, false
		}
		if n > 1 { // the stride of a dimension of size 1 is never used
			dims = append(dims, i)
		}
	}
	slices.SortFunc(dims, func(a, b int) int { return int(min(max(strides[a]-strides[b], -1), 1)) })
	next := int64(1)
	for _, i := range dims {
		if strides[i] != next {
			return 0, false
		}
		next *= sizes[i]
	}
	return uint64(total), true
}
