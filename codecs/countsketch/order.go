package countsketch

// An order is the order in which kernels take a row's coordinates: in tiles of runs that begin stride after each other,
// 16 of each run in turn. The zero order is ascending.
//
// Hashes of coordinates stride apart are always the same distance apart. Where that is small, the cells of the runs lie
// side by side and share lines of memory, so that a row larger than a core's first cache fetches and writes back fewer
// lines.
type order struct{ stride, runs int }

const (
	maxRuns         = 4       // that kernels have room for
	minStride       = 1 << 8  // kernels leave over up to 15 of a run
	lineCells       = 64 / 4  // that share a line of memory
	firstCacheCells = 1 << 13 // that lie in a core's first cache
)

// orderOf returns the order that brings most cells of span coordinates together, if their hashes are mul apart. In that
// order each cell gets its coordinates in ascending order: coordinates at different places in their runs share no cell
// if their distance is less than that of the first run from the last.
func orderOf(mul uint64, columns, span int) (best order) {
	cell := (1<<32-1)/uint64(columns) + 1 // hashes with the same column are less than that apart
	var near []int                        // how far apart coordinates are that may share a line
	for d, key := 1, mul; d <= span; d, key = d+1, key+mul {
		if apart(key) < lineCells*cell {
			near = append(near, d)
		}
	}
	smallest := 1.0
	for _, d := range near {
		runs := min(maxRuns, span/d)
		for _, e := range near {
			if e >= (runs-1)*d {
				break
			}
			if e%d != 0 && apart(uint64(e)*mul) < cell {
				runs = e/d + 1
				break
			}
		}
		if d < minStride || runs < 2 {
			continue
		}
		share := float64(apart(uint64(d)*mul)) / float64(lineCells*cell)
		if lines := (1 + float64(runs-1)*share) / float64(runs); lines < smallest { // lines a coordinate
			smallest, best = lines, order{d, runs}
		}
	}
	return best
}

// apart returns the distance, in the upper 32 bits, of two keys that differ by key.
func apart(key uint64) uint64 { return min(key, -key) >> 32 }
