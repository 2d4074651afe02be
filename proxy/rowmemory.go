package proxy

import (
	"slices"

	"github.com/gradproxy/gradproxy/tensor"
)

// What senders remember of sparse gradients, whose rows change from message to message: the residual by row, which waits
// until the row comes again. The array (job and key of its index) is the tensor, and not the set of rows of one message.

// A rowMemory is one array's. Rows that are being encoded are taken out of it, and what they then owe is given back; so no
// lock is held over an encoding, and connections that send the same rows at once lose nothing, in whatever order. All
// fields but the first five are guarded by among.mu.
type rowMemory struct {
	rowKey
	dtype tensor.DType
	width int  // elements of a row
	lasts bool // it outlives the connection, and the process
	among *memories

	used           uint64 // tick of the last value
	values         int    // how many have come
	scale          rowScale
	slots          map[uint64]int32 // places in rows, by row
	rows           []rowOwed        // without holes
	chunks         [][]float32      // their residuals, chunkRows in each
	newest, oldest int32            // places of the rows that were used most and least recently, or none
}

// A rowKey names an array: by its index, which is of one worker.
type rowKey struct {
	job  string
	keys uint64
}

// A rowOwed is a row to which something is or was owed, in the order of use.
type rowOwed struct {
	id           uint64
	used         uint64 // tick
	newer, older int32  // places, or none
}

const none = int32(-1)

const (
	// chunkSize is about how many values are allocated at a time.
	chunkSize = 4 << 10
	// maxRowMemories bounds the arrays: each is looked at to find the row that was used least recently.
	maxRowMemories = 1 << 10
)

// rowsCost is what an array takes beside its rows: itself, and a chunk that is not full.
const rowsCost = 512 + 4*chunkSize

// rowCost is what a row takes: residual, rowOwed (24 bytes), and its place in a map.
func rowCost(width int) int64 { return 4*int64(width) + 48 }

func (m *rowMemory) cost() int64 { return rowsCost + int64(len(m.rows))*rowCost(m.width) }

func (ms *memories) newRowMemory(k rowKey, d tensor.DType, width int, lasts bool) *rowMemory {
	return &rowMemory{rowKey: k, dtype: d, width: width, lasts: lasts, among: ms, slots: map[uint64]int32{}, newest: none, oldest: none}
}

// rowsOf returns the memory of t's array, whose rows have width elements. It is new if there was none or if width or type
// have changed, and nil if it had no room for a row.
func (ms *memories) rowsOf(job string, t tensor.Tensor, width int, lasts bool) *rowMemory {
	k := rowKey{job, t.Keys}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.rows[k]
	if m != nil && (m.dtype != t.DType || m.width != width) {
		ms.forgetRows(m)
		m = nil
	}
	if m == nil {
		if rowsCost+rowCost(width) > ms.limit {
			ms.short = true
			return nil
		}
		m = ms.newRowMemory(k, t.DType, width, lasts)
		ms.addRows(m)
	}
	m.used = ms.now()
	return m
}

// addRows takes in an array's memory, and forgets others to make room. ms.mu is held.
func (ms *memories) addRows(m *rowMemory) {
	for len(ms.rows) >= maxRowMemories {
		ms.forgetRows(ms.leastRecentRows())
	}
	m.used = ms.now()
	ms.rows[m.rowKey] = m
	ms.bytes += m.cost()
	ms.room(0)
}

// forgetRows drops an array's memory. ms.mu is held.
func (ms *memories) forgetRows(m *rowMemory) {
	delete(ms.rows, m.rowKey)
	ms.bytes -= m.cost()
	ms.rowsLost(m, len(m.rows))
}

// rowsLost notes that so many rows of m are gone, with what was owed to them.
func (ms *memories) rowsLost(m *rowMemory, n int) {
	m.changed()
	if n > 0 && ms.lostRows != nil {
		ms.lostRows(n)
	}
}

// dropRows forgets m, if it is still what is remembered of its array.
func (ms *memories) dropRows(m *rowMemory) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.rows[m.rowKey] == m {
		ms.forgetRows(m)
	}
}

// leastRecentRows returns the array with the row that was used least recently, or nil. ms.mu is held.
func (ms *memories) leastRecentRows() (found *rowMemory) {
	for _, m := range ms.rows {
		if found == nil || m.leastRecent() < found.leastRecent() {
			found = m
		}
	}
	return found
}

// leastRecent returns the tick of the row that was used least recently, or the array's if there is none.
func (m *rowMemory) leastRecent() uint64 {
	if m.oldest == none {
		return m.used
	}
	return m.rows[m.oldest].used
}

// changed notes that what is owed changes.
func (m *rowMemory) changed() {
	if m.lasts {
		m.among.changes.Add(1)
	}
}

// begin notes that the next value comes, of whatever rows, and reports whether it is one that pays what is owed to them.
func (m *rowMemory) begin(every int) (pays bool) {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	m.values++
	m.scale.begin()
	return every > 0 && m.values%every == 0
}

// check compares a block of rows with those that came before, and reports whether it may lose something; first: there were
// none.
func (m *rowMemory) check(block []byte) (plausible, first bool) {
	square := meanSquare(m.dtype, block)
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	return m.scale.check(square)
}

// take moves what is owed to rows into owed, which has width elements for each of them.
func (m *rowMemory) take(ids rowIDs, owed []float32) {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	for i := range ids.len() {
		part := owed[i*m.width : (i+1)*m.width]
		at, ok := m.slots[ids.at(i)]
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

// give adds owed to what is owed to rows; owed is of no use then. Rows for which there is no room are lost.
func (m *rowMemory) give(ids rowIDs, owed []float32) {
	ms := m.among
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.changed()
	lost := 0
	for i := range ids.len() {
		part := owed[i*m.width : (i+1)*m.width]
		id := ids.at(i)
		at, ok := m.slots[id]
		if !ok {
			if !owes(part) {
				continue
			}
			ms.room(rowCost(m.width))
			if ms.rows[m.rowKey] != m || ms.bytes+rowCost(m.width) > ms.limit {
				lost++
				continue
			}
			at = m.insert(id)
			ms.bytes += rowCost(m.width)
		}
		m.touch(at)
		for i, x := range m.residual(at) {
			part[i] += x
		}
		copy(m.residual(at), part)
	}
	ms.rowsLost(m, lost)
}

func owes(residual []float32) bool {
	return slices.ContainsFunc(residual, func(x float32) bool { return x != 0 })
}

// residual returns what is owed to the row at that place.
func (m *rowMemory) residual(at int32) []float32 {
	n := m.chunkRows()
	from := int(at) % n * m.width
	return m.chunks[int(at)/n][from : from+m.width]
}

func (m *rowMemory) chunkRows() int { return max(1, chunkSize/m.width) }

// insert makes a place for a row, which is owed nothing yet and was used last.
func (m *rowMemory) insert(id uint64) (at int32) {
	at = int32(len(m.rows))
	if n := m.chunkRows(); len(m.rows) == n*len(m.chunks) {
		m.chunks = append(m.chunks, make([]float32, n*m.width))
	}
	m.rows = append(m.rows, rowOwed{id: id})
	m.slots[id] = at
	m.link(at)
	return at
}

// touch notes that the row at that place was used.
func (m *rowMemory) touch(at int32) {
	m.unlink(at)
	m.link(at)
}

func (m *rowMemory) link(at int32) {
	r := &m.rows[at]
	r.used, r.newer, r.older = m.among.now(), none, m.newest
	if m.newest != none {
		m.rows[m.newest].newer = at
	}
	if m.newest = at; m.oldest == none {
		m.oldest = at
	}
}

func (m *rowMemory) unlink(at int32) {
	r := m.rows[at]
	m.join(r.newer, r.older)
}

// join makes older and newer neighbours; none is an end.
func (m *rowMemory) join(newer, older int32) {
	if newer == none {
		m.newest = older
	} else {
		m.rows[newer].older = older
	}
	if older == none {
		m.oldest = newer
	} else {
		m.rows[older].newer = newer
	}
}

// evict drops the row that was used least recently. The last one takes its place. among.mu is held.
func (m *rowMemory) evict() {
	at, last := m.oldest, int32(len(m.rows)-1)
	m.unlink(at)
	delete(m.slots, m.rows[at].id)
	if at != last {
		r := m.rows[last]
		copy(m.residual(at), m.residual(last))
		m.rows[at] = r
		m.slots[r.id] = at
		m.moved(at)
	}
	clear(m.residual(last))
	m.rows = m.rows[:last]
	if n := m.chunkRows(); len(m.rows) <= n*(len(m.chunks)-1) {
		m.chunks[len(m.chunks)-1] = nil
		m.chunks = m.chunks[:len(m.chunks)-1]
	}
	if last == 0 {
		m.rows, m.chunks, m.slots = nil, nil, map[uint64]int32{}
	}
	m.among.bytes -= rowCost(m.width)
	m.among.rowsLost(m, 1)
}

// moved tells the neighbours of a row that it is at that place now.
func (m *rowMemory) moved(at int32) {
	r := m.rows[at]
	if r.newer == none {
		m.newest = at
	} else {
		m.rows[r.newer].older = at
	}
	if r.older == none {
		m.oldest = at
	} else {
		m.rows[r.older].newer = at
	}
}
