package countsketch

import "math"

// Query sets dst to the estimates of the coordinates from, from+1, …: the median over the rows of sign times cell. It
// panics if some of them have no hashes.
func (s *Sketch) Query(dst []float32, from int) {
	s.hash.contains(from, len(dst))
	_, span := s.hash.spans()
	if s.estimates == nil {
		s.estimates = make([]int32, s.hash.Rows*span)
	}
	var lists [MaxRows][]int32
	rows := lists[:s.hash.Rows]
	for len(dst) > 0 {
		signs := s.next(from, len(dst), span)
		n := len(signs)
		for r := range rows {
			mul := s.hash.mul[r]
			rows[r] = s.estimates[r*n : (r+1)*n]
			query(rows[r], s.row(r), signs, r, mul*uint64(from)+s.hash.add[r], mul)
		}
		medians(dst[:n], &lists, len(rows))
		from, dst = from+n, dst[n:]
	}
}

// query sets dst to row r's estimates, as ordered integers; key and mul are as in insert.
func query(dst []int32, row []float32, signs []uint16, r int, key, mul uint64) {
	n := queryTiles(dst, row, signs, r, key, mul)
	queryPlain(dst[n:], row, signs[n:], r, key+uint64(n)*mul, mul)
}

// queryPlain is query in Go.
func queryPlain(dst []int32, row []float32, signs []uint16, r int, key, mul uint64) {
	c, up := uint64(len(row)), uint(31-r)
	signs = signs[:len(dst)]
	for i := range dst {
		j := key >> 32 * c >> 32
		key += mul
		dst[i] = ordered(math.Float32bits(row[j]) ^ uint32(signs[i])<<(up&31)&(1<<31))
	}
}

// ordered returns an integer that compares as the float32 of these bits does, -0 below +0; it is its own inverse.
func ordered(bits uint32) int32 {
	b := int32(bits)
	return b ^ int32(uint32(b>>31)>>1)
}

func value(o int32) float32 { return math.Float32frombits(uint32(ordered(uint32(o)))) }

// medians sets dst to the medians over the first n of rows, and changes the rows. Integers' minimum and maximum take no
// branch, which sorting random numbers would miss half of the time; floats' have to mind NaN.
func medians(dst []float32, rows *[MaxRows][]int32, n int) {
	from := mediansTiles(dst, rows, n)
	mediansPlain(dst, rows[:n], from)
}

// mediansPlain is medians in Go, from the coordinate from on.
func mediansPlain(dst []float32, rows [][]int32, from int) {
	n := len(dst)
	switch middle := rows[len(rows)/2][:n]; len(rows) {
	case 3:
		a, c := rows[0][:n], rows[2][:n]
		for i := from; i < n; i++ {
			dst[i] = value(median3(a[i], middle[i], c[i]))
		}
	case 5:
		a, b, c, d := rows[0][:n], rows[1][:n], rows[3][:n], rows[4][:n]
		for i := from; i < n; i++ {
			dst[i] = value(median5(a[i], b[i], middle[i], c[i], d[i]))
		}
	default:
		for ; from < n; from += sorted {
			to := min(from+sorted, n)
			sortRows(rows, from, to)
			for i := from; i < to; i++ {
				dst[i] = value(middle[i])
			}
		}
	}
}

func median3(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

// median5 drops the least and the largest of four, since neither can be the median of five, and takes the median of the
// rest.
func median5(a, b, c, d, e int32) int32 {
	low, high := max(min(a, b), min(c, d)), min(max(a, b), max(c, d))
	return median3(low, high, e)
}

// sorted is the number of coordinates that are sorted at a time: all their rows lie in a core's first cache.
const sorted = 512

// sortRows sorts each coordinate's estimates over the rows, all coordinates from from to to by the same exchanges:
// Batcher's odd-even merge sort (Knuth, The Art of Computer Programming, 5.2.2, Algorithm M).
func sortRows(rows [][]int32, from, to int) {
	n := len(rows)
	for p := 1; p < n; p *= 2 {
		for k := p; k >= 1; k /= 2 {
			for j := k % p; j+k < n; j += 2 * k {
				for i := j; i < min(j+k, n-k); i++ {
					if i/(2*p) == (i+k)/(2*p) {
						exchange(rows[i][from:to], rows[i+k][from:to])
					}
				}
			}
		}
	}
}

// exchange puts the lesser of each pair into low and the greater into high, which must be as long.
func exchange(low, high []int32) {
	high = high[:len(low)]
	for i, a := range low {
		b := high[i]
		low[i], high[i] = min(a, b), max(a, b)
	}
}
