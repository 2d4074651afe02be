package learn

// Sparse are rows of few features that are not zero.
type Sparse struct {
	Starts  []int    // of each row in Columns and Values, and their length
	Columns []uint32 // ascending in a row
	Values  []float32
	Width   int // features
}

// Len returns the number of rows.
func (s *Sparse) Len() int { return len(s.Starts) - 1 }

// Features returns how many features there are, zero or not.
func (s *Sparse) Features() int { return s.Width }

// Row returns the i-th row, which the Sparse owns.
func (s *Sparse) Row(i int) (columns []uint32, values []float32) {
	from, to := s.Starts[i], s.Starts[i+1]
	return s.Columns[from:to], s.Values[from:to]
}

// Dot implements Examples.
func (s *Sparse) Dot(i int, w []float32) (sum float64) {
	columns, values := s.Row(i)
	for j, c := range columns {
		sum += float64(float64(values[j]) * float64(w[c]))
	}
	return sum
}

// AddTo implements Examples.
func (s *Sparse) AddTo(g []float32, i int, factor float32) {
	columns, values := s.Row(i)
	for j, c := range columns {
		g[c] += float32(factor * values[j])
	}
}

// Dense are rows of Width features each.
type Dense struct {
	Values []float32
	Width  int
}

// Len returns the number of rows.
func (d *Dense) Len() int { return len(d.Values) / d.Width }

// Features returns Width.
func (d *Dense) Features() int { return d.Width }

// Row returns the i-th row, which the Dense owns.
func (d *Dense) Row(i int) []float32 { return d.Values[i*d.Width : (i+1)*d.Width] }

// Dot implements Examples.
func (d *Dense) Dot(i int, w []float32) float64 {
	var a, b float64 // two sums, since each addition waits for the one before
	row := d.Row(i)
	j := 0
	for ; j+1 < len(row); j += 2 {
		a += float64(float64(row[j]) * float64(w[j]))
		b += float64(float64(row[j+1]) * float64(w[j+1]))
	}
	if j < len(row) {
		a += float64(float64(row[j]) * float64(w[j]))
	}
	return a + b
}

// AddTo implements Examples.
func (d *Dense) AddTo(g []float32, i int, factor float32) {
	for j, v := range d.Row(i) {
		g[j] += float32(factor * v)
	}
}
