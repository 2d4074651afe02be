package skcompress

import (
	"fmt"
	"math"
)

// Empty is the content of a cell without an insertion.
const Empty = math.MaxUint16

// A MinMaxSketch remembers a small integer for each key (section 4.2), in fewer cells than there are keys: s rows of t.
// In each row a key has one cell; a cell keeps the least index that its keys insert; and a query takes the largest of
// its key's cells. So the answer is never more than the inserted index: with indexes that count from zero outwards, no
// value grows.
type MinMaxSketch struct {
	rows  int    // s
	cols  uint32 // t
	start uint64 // of SplitMix64's state for key 0
	cells []uint16
}

// init makes s an empty sketch in cells.
func (s *MinMaxSketch) init(rows, cols int, salt uint8, cells []uint16) {
	if rows < 1 || cols < 1 || cols > math.MaxInt32 {
		panic(fmt.Sprintf("skcompress: a sketch of %d rows and %d columns", rows, cols))
	}
	s.rows, s.cols, s.cells = rows, uint32(cols), cells
	s.start = uint64(salt) * gamma
	for i := range cells {
		cells[i] = Empty
	}
}

// Insert remembers index, which must be less than Empty, for key, or a lesser index that is in the key's cells.
func (s *MinMaxSketch) Insert(key uint64, index uint16) {
	h, step := hash(s.start + key)
	for row := uint64(0); row < uint64(len(s.cells)); row += uint64(s.cols) {
		cell := &s.cells[row+uint64(h)*uint64(s.cols)>>32]
		*cell = min(*cell, index)
		h += step
	}
}

// Query returns the index remembered for key: at most the inserted one, or Empty if surely none was inserted.
func (s *MinMaxSketch) Query(key uint64) uint16 {
	h, step := hash(s.start + key)
	largest := uint16(0)
	for row := uint64(0); row < uint64(len(s.cells)); row += uint64(s.cols) {
		largest = max(largest, s.cells[row+uint64(h)*uint64(s.cols)>>32])
		h += step
	}
	return largest
}

const gamma = 0x9e3779b97f4a7c15 // the increment of SplitMix64's state

// hash returns a key's place in the first row, as a fraction of 2^32, and its distance from row to row. It is the
// output of SplitMix64: its halves are as good as two hashes (https://doi.org/10.1145/2660193.2660195).
func hash(key uint64) (first, step uint32) {
	key += gamma
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	key ^= key >> 31
	return uint32(key), uint32(key >> 32)
}
