package countsketch

import "fmt"

const (
	// MaxRows is the maximum of rows in a sketch: a coordinate's signs are 16 bits, one for each row.
	MaxRows = 15
	// MaxColumns is the maximum of columns in a sketch.
	MaxColumns = 1 << 28
	// MaxCoordinates is the maximum of coordinates in a vector: a coordinate is a key of 32 bits.
	MaxCoordinates = 1 << 32
)

// Config has the parameters that two sketches must have in common to be added.
type Config struct {
	Rows    int    // r, odd, 1 to 15: the median is a row's own estimate
	Columns int    // c, 1 to 1<<28
	Seed    uint64 // of all hash functions
}

func (c Config) check() error {
	switch {
	case c.Rows < 1 || c.Rows > MaxRows || c.Rows%2 == 0:
		return fmt.Errorf("countsketch: %d rows; write an odd number from 1 to %d", c.Rows, MaxRows)
	case c.Columns < 1 || c.Columns > MaxColumns:
		return fmt.Errorf("countsketch: %d columns; write a number from 1 to %d", c.Columns, MaxColumns)
	}
	return nil
}

// A Hash is the hash functions of a Config for vectors of up to a certain length: per row a bucket and a sign for each
// coordinate. It is immutable and safe for concurrent use; sketches share it. It takes up to 384 KiB, and 2 bytes more
// for each 65,536 coordinates.
type Hash struct {
	Config
	coordinates int
	mul, add    [MaxRows]uint64 // per row: the bucket of i is mul·i + add, its upper 32 bits, in units of 2^32/c
	orders      [MaxRows]order  // per row: of inserting
	signs       [3][]uint16     // of the upper and lower 16 bits of a coordinate, and of their sum: bit r is row r's
}

// NewHash makes the hash functions for vectors of at most the given number of coordinates, 0 to MaxCoordinates. That
// number does not change a coordinate's hashes.
func NewHash(c Config, coordinates int) (*Hash, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if coordinates < 0 || uint64(coordinates) > MaxCoordinates {
		return nil, fmt.Errorf("countsketch: %d coordinates; at most %d have hashes", coordinates, uint64(MaxCoordinates))
	}
	h := &Hash{Config: c, coordinates: coordinates}
	for r := range c.Rows {
		h.mul[r], h.add[r] = word(c.Seed, 0, 2*uint64(r)), word(c.Seed, 0, 2*uint64(r)+1)
	}
	if c.near() && c.Columns > firstCacheCells {
		span, _ := c.spans()
		for r := range c.Rows {
			h.orders[r] = orderOf(h.mul[r], c.Columns, min(span, coordinates))
		}
	}
	if coordinates > 0 {
		high, low := (coordinates-1)>>16, min(coordinates-1, 0xffff) // the largest
		for t, largest := range [3]int{high, low, high + low} {
			h.signs[t] = make([]uint16, largest+1)
			fill(h.signs[t], c.Seed, uint64(t)+1)
		}
	}
	return h, nil
}

// fill sets each element of a table of signs: four to a word, the lowest bits first.
func fill(table []uint16, seed, t uint64) {
	var w uint64
	for i := range table {
		if i%4 == 0 {
			w = word(seed, t, uint64(i/4))
		}
		table[i] = uint16(w >> (16 * (i % 4)))
	}
}

// golden is 2^64 over the golden ratio, the step of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// word is number i of sequence t of a seed: the i-th output of SplitMix64 from a start that the t-th of seed makes.
func word(seed, t, i uint64) uint64 { return mix(mix(seed+(t+1)*golden) + (i+1)*golden) }

// mix is the output function of SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// signsOf sets dst to the signs of the coordinates from on, which have the same upper 16 bits.
func (h *Hash) signsOf(dst []uint16, from int) {
	high, low := from>>16, from&0xffff
	s := h.signs[0][high]
	a, b := h.signs[1][low:][:len(dst)], h.signs[2][high+low:][:len(dst)]
	for i := signsTiles(dst, a, b, s); i < len(dst); i++ {
		dst[i] = s ^ a[i] ^ b[i]
	}
}
