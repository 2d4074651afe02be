package residual

import (
	"slices"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// Rows are the memory of one sparse tensor: of the array that its index belongs to (job and key of the index), and not
// of the set of rows of one message. Rows that are being encoded are taken out of it ([Rows.Take]), and their new
// residual is given back ([Store.GiveRows]); so no lock is held over an encoding, and connections that send the same
// rows at once lose nothing, in whatever order. ledger.mu guards all fields but the first five.
type Rows struct {
	rowsKey
	dtype   tensor.DType
	width   int  // elements of a row
	lasting bool // the tensor outlives the connection, and the process
	ledger  *ledger

	forgotten bool   // it is not the memory of its array any more
	used      uint64 // tick of the last value
	values    int    // that have come
	scale     scale
	guard     feedback.Control // of the rows together
	seen      feedback.Sample  // of the last value that was measured
	places    map[uint64]int32 // in rows, by row number
	rows      []row            // without holes
	chunks    [][]float32      // their residuals, chunkRows in each
	order     lru.List         // of their places
}

// A rowsKey names an array: by its index, which is of one worker.
type rowsKey struct {
	job  string
	keys uint64
}

// A row has or had a residual. A row's place tells where its residual lies.
type row struct {
	id   uint64
	used uint64 // tick
}

const (
	// chunkSize is about how many values are allocated at a time.
	chunkSize = 4 << 10
	// maxArrays bounds the sparse tensors: Store.fit looks at each of them to find the row that was used least
	// recently.
	maxArrays = 1 << 10
)

// rowsCost is the memory that an array takes beside its rows: itself, and a chunk that is not full.
const rowsCost = 512 + 4*chunkSize

// rowCost is the memory that a row takes: residual, row and its link (24 bytes), and its place in a map.
func rowCost(width int) int64 { return 4*int64(width) + 48 }

func (m *Rows) cost() int64 { return rowsCost + int64(len(m.rows))*rowCost(m.width) }

func newRows(l *ledger, k rowsKey, d tensor.DType, width int, lasting bool) *Rows {
	return &Rows{rowsKey: k, dtype: d, width: width, lasting: lasting, ledger: l, places: map[uint64]int32{}}
}

// stalest returns the tick of the row that was used least recently, or the array's if there is none.
func (m *Rows) stalest() uint64 {
	if oldest := m.order.Oldest(); oldest != lru.None {
		return m.rows[oldest].used
	}
	return m.used
}

// gone notes that n rows of m are gone, with their residuals.
func (m *Rows) gone(n int) {
	m.changed()
	if n > 0 && m.ledger.lostRows != nil {
		m.ledger.lostRows(n)
	}
}

// changed notes that a residual changes.
func (m *Rows) changed() {
	if m.lasting {
		m.ledger.changes.Add(1)
	}
}

// A RowsDue has the work that is due with a value of rows.
type RowsDue struct {
	Flush    bool // it travels exactly, with the residuals of its rows
	Guarded  bool // the same, since receivers are too far behind
	Measured bool // the guard looks at its encoding
}

// Begin notes that the next value comes, of whatever rows. A residual flush is due every so many values, or never if
// every is 0. bound is that of the codec's residual ratio; 0: it does not adapt.
func (m *Rows) Begin(every int, bound float64) (due RowsDue) {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	m.values++
	m.scale.begin()
	m.guard.Saw(m.seen, bound)
	m.seen = feedback.Sample{}
	due.Guarded = m.guard.Exact()
	due.Flush = due.Guarded || every > 0 && m.values%every == 0
	due.Measured = !due.Flush && m.guard.Due()
	return due
}

// Check is the content check: it compares a block of rows with the blocks that came before, and reports whether it may
// lose something; first says that there were none.
func (m *Rows) Check(block []byte) (plausible, first bool) {
	square := meanSquare(m.dtype, block)
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	return m.scale.check(square)
}

// Take moves the residuals of rows into dst, which has width elements for each of them.
func (m *Rows) Take(ids IDs, dst []float32) {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	for i := range ids.Len() {
		part := dst[i*m.width : (i+1)*m.width]
		at, ok := m.places[ids.At(i)]
		if !ok {
			clear(part)
			continue
		}
		residual := m.residual(at)
		copy(part, residual)
		clear(residual)
		m.touch(at)
	}
}

// add adds part to the residual of the row at that place; part is of no use then. ledger.mu is held.
func (m *Rows) add(at int32, part []float32) {
	m.touch(at)
	residual := m.residual(at)
	for i, x := range residual {
		part[i] += x
	}
	copy(residual, part)
}

// anyLost reports whether a residual is not zero.
func anyLost(residual []float32) bool {
	return slices.ContainsFunc(residual, func(x float32) bool { return x != 0 })
}

// residual returns the residual of the row at that place.
func (m *Rows) residual(at int32) []float32 {
	n := m.chunkRows()
	from := int(at) % n * m.width
	return m.chunks[int(at)/n][from : from+m.width]
}

func (m *Rows) chunkRows() int { return max(1, chunkSize/m.width) }

// insert makes a place for a row, which has no residual yet and was used last.
func (m *Rows) insert(id uint64) (at int32) {
	at = int32(len(m.rows))
	if n := m.chunkRows(); len(m.rows) == n*len(m.chunks) {
		m.chunks = append(m.chunks, make([]float32, n*m.width))
	}
	m.rows = append(m.rows, row{id, m.ledger.now()})
	m.places[id] = at
	m.order.Add()
	return at
}

// touch notes that the row at that place was used.
func (m *Rows) touch(at int32) {
	m.rows[at].used = m.ledger.now()
	m.order.Use(at)
}

// evict drops the row that was used least recently. The last one takes its place. ledger.mu is held.
func (m *Rows) evict() {
	at, last := m.order.Oldest(), int32(len(m.rows)-1)
	m.order.Remove(at)
	delete(m.places, m.rows[at].id)
	if at != last {
		r := m.rows[last]
		copy(m.residual(at), m.residual(last))
		m.rows[at] = r
		m.places[r.id] = at
	}
	clear(m.residual(last))
	m.rows = m.rows[:last]
	if n := m.chunkRows(); len(m.rows) <= n*(len(m.chunks)-1) {
		m.chunks[len(m.chunks)-1] = nil
		m.chunks = m.chunks[:len(m.chunks)-1]
	}
	if last == 0 {
		m.rows, m.chunks, m.places = nil, nil, map[uint64]int32{}
	}
	m.ledger.bytes -= rowCost(m.width)
	m.gone(1)
}
