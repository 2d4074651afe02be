package magnitude

import (
	"math"
	"slices"
)

const (
	sign     = 1 << 31
	infinity = 0x7f800000

	binBits   = 12                    // of a magnitude's 31: the exponent, and four more
	binShift  = 31 - binBits          // from a magnitude to its bin
	bins      = 1 << binBits          // 16 KiB of counts
	groupSize = 8                     // values that Select looks at together
	cut       = 1 << 14               // values between two looks at a list's room
	listSlack = groupSize             // entries that a group may write beyond the list's end
	low7      = 1<<(31-2*binBits) - 1 // the bits that two histograms leave
)

// A Histogram counts magnitudes by their upper 12 bits.
type Histogram [bins]uint32

// Add counts the magnitudes of x.
func (h *Histogram) Add(x []float32) {
	// The compiler drops the check of bounds: a shifted uint32 is less than bins.
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := Of(x[0]), Of(x[1]), Of(x[2]), Of(x[3])
		h[a>>binShift&(bins-1)]++
		h[b>>binShift&(bins-1)]++
		h[c>>binShift&(bins-1)]++
		h[d>>binShift&(bins-1)]++
	}
	for _, v := range x {
		h[Of(v)>>binShift&(bins-1)]++
	}
}

// Bin returns the bin that holds the k-th largest magnitude, k >= 1, and how many lie in bins above it. If fewer than
// k were counted, that is bin 0.
func (h *Histogram) Bin(k int) (bin uint32, above int) {
	bin = bins - 1
	for bin >= 8 && h[bin]|h[bin-1]|h[bin-2]|h[bin-3]|h[bin-4]|h[bin-5]|h[bin-6]|h[bin-7] == 0 {
		bin -= 8 // few values are near the largest that there could be
	}
	for ; bin > 0; bin-- {
		if above+int(h[bin]) >= k {
			break
		}
		above += int(h[bin])
	}
	return bin, above
}

// Of returns the bits of x without their sign. Magnitudes have the order of these integers; infinities and NaN come
// last.
func Of(x float32) uint32 { return math.Float32bits(x) &^ sign }

// Finite reports whether m is the magnitude of a number.
func Finite(m uint32) bool { return m < infinity }

// Select appends the positions and values of each x with a magnitude of at least t, in order, to keys and values, which
// must have one length. t is at least 1, at most that of an infinity: so a NaN or infinity is always selected, and a
// zero never.
func Select(keys []uint32, values []float32, x Values, t uint32) ([]uint32, []float32) {
	return selectAll(keys, values, x, t, t)
}

// selectAll is Select, but it takes from a residual only magnitudes of at least gone, which must not be less than t.
func selectAll(keys []uint32, values []float32, x Values, t, gone uint32) ([]uint32, []float32) {
	for from := 0; from < x.Len(); from += cut {
		part := x.Slice(from, min(from+cut, x.Len()))
		n, room := len(keys), part.Len()+listSlack
		keys, values = slices.Grow(keys, room), slices.Grow(values, room)
		found := selectPart(keys[n:n+room], values[n:n+room], part, uint32(from), t, gone)
		keys, values = keys[:n+found], values[:n+found]
	}
	return keys, values
}

// selectPart writes the entries that selectAll appends for v, the values from position from, and returns their number.
// keys and values must have room for v.Len()+listSlack.
func selectPart(keys []uint32, values []float32, v Values, from, t, gone uint32) int {
	n, i := selectTiles(keys, values, v, from, t, gone)
	if keys, values, v, from = keys[n:], values[n:], v.Slice(i, v.Len()), from+uint32(i); v.Residual != nil {
		return n + selectSums(keys, values, v, from, t, gone)
	}
	return n + selectPlain(keys, values, v.X, from, t)
}

// selectPlain is selectPart of values that are not sums.
func selectPlain(keys []uint32, values, x []float32, from, t uint32) (n int) {
	i := 0
	for ; i+groupSize <= len(x); i += groupSize {
		g := x[i : i+groupSize : i+groupSize]
		// m + (2^31 - t) has bit 31 set if m >= t: few groups have any.
		lift := uint32(sign) - t
		any := (Of(g[0]) + lift) | (Of(g[1]) + lift) | (Of(g[2]) + lift) | (Of(g[3]) + lift) |
			(Of(g[4]) + lift) | (Of(g[5]) + lift) | (Of(g[6]) + lift) | (Of(g[7]) + lift)
		if any&sign == 0 {
			continue
		}
		for j, v := range g {
			keys[n], values[n] = from+uint32(i+j), v
			n += int((Of(v) + lift) >> 31)
		}
	}
	for ; i < len(x); i++ {
		if Of(x[i]) >= t {
			keys[n], values[n] = from+uint32(i), x[i]
			n++
		}
	}
	return n
}

// selectSums is selectPart of sums.
func selectSums(keys []uint32, values []float32, v Values, from, t, gone uint32) (n int) {
	var room [32 * groupSize]float32
	for i := 0; i < v.Len(); i += len(room) {
		part := v.Slice(i, min(i+len(room), v.Len()))
		sums := part.appendTo(room[:0])
		copy(part.Old, part.Residual)
		copy(part.Residual, sums)
		begin := from + uint32(i)
		found := selectPlain(keys[n:], values[n:], sums, begin, t)
		for _, key := range keys[n : n+found] {
			if left := &part.Residual[key-begin]; Of(*left) >= gone {
				*left = 0
			}
		}
		n += found
	}
	return n
}

// Kth returns the k-th largest magnitude of x, 1 <= k <= len(x), and how many are larger: by histograms of its upper 12
// bits, of the next 12 among the magnitudes that share them, and of the last 7; few values are sorted, and where
// counting is quick, that finds it.
func Kth(x []float32, k int) (t uint32, larger int) {
	if len(x) <= few {
		return kthOfFew(x, k)
	}
	if counts(x) {
		return kthByCounts(x, k)
	}
	var h Histogram
	h.Add(x)
	first, above := h.Bin(k)
	larger = above

	h = Histogram{}
	eachWithin(x, first<<binShift, (first+1)<<binShift, func(m uint32) {
		h[m>>(binShift-binBits)&(bins-1)]++
	})
	second, above := h.Bin(k - larger)
	larger += above

	upper := (first<<binBits | second) << (binShift - binBits)
	var last [low7 + 1]int
	eachWithin(x, upper, upper+low7+1, func(m uint32) { last[m&low7]++ })
	third := uint32(low7)
	for ; third > 0 && larger+last[third] < k; third-- {
		larger += last[third]
	}
	return upper | third, larger
}

// kthByCounts is Kth by counting how many values reach a magnitude, until few are left that may be the k-th. It begins
// with a magnitude that is probably near, goes on in steps four times the one before, and halves once it has passed the
// k-th.
func kthByCounts(x []float32, k int) (t uint32, larger int) {
	low, reach := uint32(0), len(x) // so many are at least low
	end, larger := uint32(sign), 0  // and so many at least end
	middle, step := end/2, end
	if len(x) > 4*guessed {
		if t := guessKth(x, k); t > 0 {
			middle, step = t, guessStep
		}
	}
	for reach-larger > few/8 && end-low > 1 {
		n := countAll(x, middle)
		if n >= k {
			low, reach = middle, n
			middle = low + min(step, (end-low)/2)
		} else {
			end, larger = middle, n
			middle = end - min(step, (end-low+1)/2)
		}
		step = 4 * min(step, sign/4)
	}
	if end-low == 1 {
		return low, larger
	}
	var room [few / 8]float32
	within := room[:0]
	eachWithin(x, low, end, func(m uint32) { within = append(within, math.Float32frombits(m)) })
	if k-larger > len(within) { // the others are zeros
		return 0, larger + len(within)
	}
	t, above := kthOfFew(within, k-larger)
	return t, larger + above
}

const (
	guessed   = 1024    // values that guessKth looks at
	guessStep = 1 << 18 // the 32nd part of an octave
)

// guessKth returns about the k-th largest magnitude of x: that of lines of 16 values, evenly spread.
func guessKth(x []float32, k int) uint32 {
	var some [guessed]float32
	const lines = guessed / sampleLine
	for i := range lines {
		copy(some[i*sampleLine:][:sampleLine], x[i*len(x)/lines:])
	}
	t, _ := kthByCounts(some[:], min(k*guessed/len(x)+1, guessed))
	return t
}

// countAll returns the number of magnitudes of x that are at least t, 1 <= t < 1<<31.
func countAll(x []float32, t uint32) int {
	n, i := countTiles(x, t)
	return n + countPlain(x[i:], t)
}

func countPlain(x []float32, t uint32) (n int) {
	for _, v := range x {
		n += int((Of(v)-t)>>31 ^ 1) // both have 31 bits
	}
	return n
}

// eachWithin calls f with each magnitude of x, except zeros, that is at least t and less than end.
func eachWithin(x []float32, t, end uint32, f func(m uint32)) {
	var keys [part + listSlack]uint32
	var values [part + listSlack]float32
	for ; len(x) > 0; x = x[min(part, len(x)):] {
		found := selectPart(keys[:], values[:], Values{X: x[:min(part, len(x))]}, 0, clamp(t), 0)
		n := 0
		for _, v := range values[:found] {
			m := Of(v)
			keys[n] = m
			n += int(((m-t)>>31 ^ 1) & ((m - end) >> 31)) // 1 if t <= m < end: all have 31 bits, or end is 2^31
		}
		for _, m := range keys[:n] {
			f(m)
		}
	}
}

// part is the number of values that are selected from at a time where memory for the selected is short-lived.
const part = 1 << 9

// few is the number of values below which sorting takes less time than clearing a histogram.
const few = 128

func kthOfFew(x []float32, k int) (t uint32, larger int) {
	var room [few]uint32
	sorted := room[:len(x)]
	for i, v := range x {
		sorted[i] = Of(v)
	}
	slices.Sort(sorted)
	t = sorted[len(x)-k]
	at, _ := slices.BinarySearch(sorted, t+1)
	return t, len(x) - at
}

// Threshold returns the least magnitude of a float32 that is at least t, for Select. t is above 0 and at most the
// largest float32.
func Threshold(t float64) uint32 {
	nearest := float32(t)
	if float64(nearest) < t {
		nearest = math.Nextafter32(nearest, math.MaxFloat32)
	}
	return Of(nearest)
}
