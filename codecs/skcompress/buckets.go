package skcompress

import (
	"math"
	"slices"
)

// Buckets are the intervals between ascending splits of magnitudes, numbered from the closest to zero on (section 4.1,
// steps 1 to 3).
type Buckets struct {
	splits []float32 // bucket b is from splits[b] to splits[b+1]; no more than two are equal
	means  []float32

	// Where to look for a value's bucket: first[(bits-low)>>shift] is the bucket of the least value with bits that
	// begin so.
	first []uint16
	low   uint32
	shift uint
}

// Init makes b the buckets of splits: at least two positive numbers, ascending. A bucket is represented by the average
// of its two splits (step 3). Of equal splits two make a bucket for values equal to them, and the others none.
func (b *Buckets) Init(splits []float32) {
	b.splits, b.means = b.splits[:0], b.means[:0]
	for _, v := range splits {
		if n := len(b.splits); n < 2 || v != b.splits[n-1] || v != b.splits[n-2] {
			b.splits = append(b.splits, v)
		}
	}
	for i, high := range b.splits[1:] {
		b.means = append(b.means, float32((float64(b.splits[i])+float64(high))/2))
	}
	b.index()
}

const perBucket = 16 // entries of first

func (b *Buckets) index() {
	n := len(b.means)
	b.low = math.Float32bits(b.splits[0])
	width := math.Float32bits(b.splits[n]) - b.low
	for b.shift = 0; width>>b.shift >= uint32(perBucket*n); b.shift++ {
	}
	b.first = slices.Grow(b.first[:0], int(width>>b.shift)+1)
	at := 0
	for p := range width>>b.shift + 1 {
		smallest := math.Float32frombits(b.low + p<<b.shift)
		for b.splits[at+1] < smallest {
			at++
		}
		b.first = append(b.first, uint16(at))
	}
}

// Means returns the value that each bucket delivers. The slice is b's own.
func (b *Buckets) Means() []float32 { return b.means }

// Index returns the bucket of v, which is not beyond the first and the last split (step 2). A split belongs to the
// bucket below it, if none is for it alone.
func (b *Buckets) Index(v float32) int {
	i := int(b.first[(math.Float32bits(v)-b.low)>>b.shift])
	for b.splits[i+1] < v {
		i++
	}
	if i+2 < len(b.splits) && b.splits[i+2] == v {
		i++
	}
	return i
}
