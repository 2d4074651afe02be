package train

// A matrix is rows of equal length, one after another.
type matrix struct {
	at   []float32
	cols int
}

func newMatrix(rows, cols int) matrix { return matrix{make([]float32, rows*cols), cols} }

func (m matrix) row(i int) []float32 { return m.at[i*m.cols : (i+1)*m.cols] }

// transpose sets m to the first rows of src, as columns.
func (m matrix) transpose(src matrix) {
	for j := range src.cols {
		to := m.row(j)
		for i := range to {
			to[i] = src.at[i*src.cols+j]
		}
	}
}

// A combination is a weighted sum of rows of a matrix, in ascending order of the rows: what each product of a forward or
// backward pass is made of. Rows of weight zero are left out, which halves the work behind a ReLU.
type combination struct {
	rows    []int
	weights []float32
}

func (c *combination) reset() { c.rows, c.weights = c.rows[:0], c.weights[:0] }

func (c *combination) add(row int, weight float32) {
	if weight != 0 {
		c.rows, c.weights = append(c.rows, row), append(c.weights, weight)
	}
}

// addTo adds the combination of m's rows to y, four rows in one pass over y. Every product is rounded before it is added,
// so that processors which could fuse the two compute the same bits as those which cannot.
func (c *combination) addTo(y []float32, m matrix) {
	rows, weights := c.rows, c.weights[:len(c.rows)]
	for len(rows) >= 4 {
		w0, w1, w2, w3 := weights[0], weights[1], weights[2], weights[3]
		x0, x1, x2, x3 := m.row(rows[0])[:len(y)], m.row(rows[1])[:len(y)], m.row(rows[2])[:len(y)], m.row(rows[3])[:len(y)]
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
		w, x := weights[i], m.row(r)[:len(y)]
		for j := range y {
			y[j] += float32(w * x[j])
		}
	}
}
