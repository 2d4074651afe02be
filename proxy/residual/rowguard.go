package residual

import (
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// The guard of sparse tensors (feedback.Control) watches an array, and not each of its rows: a row's own Control would
// take 32 bytes beside the 48 that a row takes already and a few of its values, and could not act by itself, since a
// block of rows is coded as one.
//
// It looks at rows that have come before, and at no others: the residual of a new row says nothing of how far receivers
// are behind. Once it acts, the values that follow travel exactly, each with the residuals of its own rows; rows that
// do not come in that time keep theirs.

const (
	rowsMeasured = 64 // rows of a block that are looked at, at most,
	rowMeasured  = 16 // and elements of each
)

// A RowSample has some rows of a block, with their residuals before it is encoded.
type RowSample struct {
	width, n int // elements of a row, and how many of them are looked at
	rows     []int
	before   []float32
}

// SampleRows samples the rows of a block that have a residual: at most 64 rows, and the first 16 elements of each. It
// looks at every row of a block with fewer than 128 rows until it has 64, and at rows in even distances of a larger
// one. residual is the block's.
func (m *Rows) SampleRows(residual []float32) *RowSample {
	s := &RowSample{width: m.width, n: min(m.width, rowMeasured), rows: make([]int, 0, rowsMeasured)}
	s.before = make([]float32, 0, rowsMeasured*s.n)
	count := len(residual) / m.width
	apart := max(1, count/rowsMeasured)
	for row := 0; row < count && len(s.rows) < rowsMeasured; row += apart {
		if part := residual[row*m.width:][:s.n]; anyLost(part) {
			s.rows = append(s.rows, row)
			s.before = append(s.before, part...)
		}
	}
	return s
}

// Measured notes how a block of which s was sampled has been encoded. residual is the block's after that.
func (m *Rows) Measured(s *RowSample, block []byte, residual []float32) {
	var sum feedback.Sample
	var x [rowMeasured]float32
	e := m.dtype.Size()
	for i, row := range s.rows {
		at := row * m.width
		tensor.ToFloat32(x[:s.n], block[e*at:][:e*s.n], m.dtype)
		sum.Add(x[:s.n], s.before[i*s.n:][:s.n], residual[at:][:s.n])
	}
	m.ledger.mu.Lock()
	m.seen.Join(sum)
	m.ledger.mu.Unlock()
}
