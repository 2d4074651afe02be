package countsketch

import (
	"fmt"
	"math"
	"slices"
)

// A Sketch is S(g) of a vector g that is the sum of all insertions. It is not safe for concurrent use.
type Sketch struct {
	hash  *Hash
	cells []float32 // r rows of c

	signs     []uint16 // scratch of Insert and Query, one span
	estimates []int32  // scratch of Query, a span a row
}

// New returns the sketch of the zero vector.
func New(h *Hash) *Sketch { return &Sketch{hash: h, cells: make([]float32, h.Rows*h.Columns)} }

// Config returns the parameters of the sketch's hash functions.
func (s *Sketch) Config() Config { return s.hash.Config }

// Cells returns the cells, row after row. They are the sketch's own.
func (s *Sketch) Cells() []float32 { return s.cells }

// Reset makes s the sketch of the zero vector.
func (s *Sketch) Reset() { clear(s.cells) }

// near reports whether the whole table lies in a core's second cache.
func (c Config) near() bool { return c.Columns <= 1<<20/4/c.Rows }

// spans are the numbers of coordinates that go through one row after another: as many as keep a table that is near in
// its cache, or as many as keep at least the row there. Signs of coordinates come in runs that share their upper 16
// bits.
func (c Config) spans() (insert, query int) {
	if c.near() {
		return 1 << 15, 1 << 12 // queries have estimates of each row besides
	}
	return 1 << 16, 1 << 16
}

// next sets the sketch's scratch to the signs of the first of n coordinates from on, at most span.
func (s *Sketch) next(from, n, span int) []uint16 {
	n = min(n, span, 1<<16-from&0xffff)
	if len(s.signs) < n {
		s.signs = make([]uint16, min(span, s.hash.coordinates))
	}
	signs := s.signs[:n]
	s.hash.signsOf(signs, from)
	return signs
}

// Insert adds x to the coordinates from, from+1, … of the vector. It panics if some of them have no hashes. A cell adds
// its coordinates in ascending order, each sum rounded to float32.
func (s *Sketch) Insert(from int, x []float32) {
	s.hash.contains(from, len(x))
	span, _ := s.hash.spans()
	for len(x) > 0 {
		signs := s.next(from, len(x), span)
		n := len(signs)
		for r := range s.hash.Rows {
			mul := s.hash.mul[r]
			insert(s.row(r), x[:n], signs, r, mul*uint64(from)+s.hash.add[r], mul, s.hash.orders[r])
		}
		from, x = from+n, x[n:]
	}
}

func (s *Sketch) row(r int) []float32 { return s.cells[r*s.hash.Columns:][:s.hash.Columns] }

// contains panics unless the n coordinates from on have hashes.
func (h *Hash) contains(from, n int) {
	if from < 0 || from > h.coordinates || n > h.coordinates-from {
		panic(fmt.Sprintf("countsketch: coordinates %d to %d of a vector of %d", from, from+n-1, h.coordinates))
	}
}

// insert adds x to the cells of row r, in the order o for it. key is the first coordinate's hash; the upper half of it
// chooses the column; the next coordinate's is mul more.
func insert(row, x []float32, signs []uint16, r int, key, mul uint64, o order) {
	signs = signs[:len(x)]
	n := insertTiles(row, x, signs, r, key, mul, o)
	insertPlain(row, x[n:], signs[n:], r, key+uint64(n)*mul, mul)
}

// insertPlain is insert in Go.
func insertPlain(row, x []float32, signs []uint16, r int, key, mul uint64) {
	c, up := uint64(len(row)), uint(31-r)
	signs = signs[:len(x)]
	for i, v := range x {
		j := key >> 32 * c >> 32
		key += mul
		row[j] += math.Float32frombits(math.Float32bits(v) ^ uint32(signs[i])<<(up&31)&(1<<31))
	}
}

// SquaredNorm estimates the squared norm of the vector: the median over the rows of their cells' squares' sum. Of
// finite cells it is finite.
func (s *Sketch) SquaredNorm() float64 {
	var rows [MaxRows]float64
	norms := rows[:s.hash.Rows]
	for r := range norms {
		for _, v := range s.row(r) {
			norms[r] += float64(float64(v) * float64(v))
		}
	}
	slices.Sort(norms)
	return norms[len(norms)/2]
}
