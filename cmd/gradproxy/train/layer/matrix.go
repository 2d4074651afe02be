package layer

// A Matrix is rows of equal length, one after another.
type Matrix struct {
	At   []float32
	Cols int
}

// NewMatrix returns a Matrix of zeros.
func NewMatrix(rows, cols int) Matrix { return Matrix{make([]float32, rows*cols), cols} }

// Row returns the i-th row, which the Matrix owns.
func (m Matrix) Row(i int) []float32 { return m.At[i*m.Cols : (i+1)*m.Cols] }

// Transpose sets m to the first rows of src, as columns.
func (m Matrix) Transpose(src Matrix) {
	for j := range src.Cols {
		to := m.Row(j)
		for i := range to {
			to[i] = src.At[i*src.Cols+j]
		}
	}
}

// A Combination is a weighted sum of rows of a matrix, in ascending order of the rows. Every product of a forward or
// backward pass is made of such sums. Rows of weight zero are left out, which halves the work behind a ReLU.
type Combination struct {
	rows    []int
	weights []float32
}

// Reset makes c the empty sum.
func (c *Combination) Reset() { c.rows, c.weights = c.rows[:0], c.weights[:0] }

// Add adds a row with its weight.
func (c *Combination) Add(row int, weight float32) {
	if weight != 0 {
		c.rows, c.weights = append(c.rows, row), append(c.weights, weight)
	}
}

// AddTo adds the combination of m's rows to y, four rows in one pass over y. Every product is rounded before it is
// added, so that processors that could fuse the two operations compute the same bits as processors that cannot.
func (c *Combination) AddTo(y []float32, m Matrix) {
	rows, weights := c.rows, c.weights[:len(c.rows)]
	for len(rows) >= 4 {
		w0, w1, w2, w3 := weights[0], weights[1], weights[2], weights[3]
		x0, x1, x2, x3 := m.Row(rows[0])[:len(y)], m.Row(rows[1])[:len(y)], m.Row(rows[2])[:len(y)], m.Row(rows[3])[:len(y)]
		for j, v := range y {
			v += float32(w0 * x0[j])
			v += float32(w1 * x1[j])
			v += float32(w2 * x2[j])
			v += float32(w3 * x3[j])
			y[j] = v
		}
		rows, weights = rows[4:], weights[4:]
	}
	for i, r := range rows {
		w, x := weights[i], m.Row(r)[:len(y)]
		for j := range y {
			y[j] += float32(w * x[j])
		}
	}
}
