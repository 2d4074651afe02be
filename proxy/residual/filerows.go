package residual

import (
	"bufio"
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/parser/lru"
	"github.com/gradproxy/gradproxy/tensor"
)

// entryBytes is about how many bytes of rows are copied at a time, so that senders do not wait for all of them.
const entryBytes = 1 << 20

// saveRows writes the residuals of sparse tensors that outlive their connections.
func (s *Store) saveRows(out *bufio.Writer) error {
	s.mu.Lock()
	var lasting []*Rows
	for _, m := range s.rows {
		if m.lasting {
			lasting = append(lasting, m)
		}
	}
	s.mu.Unlock()
	var buf []byte
	for _, m := range lasting {
		// From the last to the first: a row may be moved to an earlier place, and is then saved twice, but never left
		// out.
		for before := math.MaxInt; before > 0; {
			if buf, before = m.appendEntry(buf[:0], before); len(buf) == 0 {
				continue
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendEntry appends an entry of rows at places below before, and returns the place below which there are others. It
// appends nothing if none of them has a residual.
func (m *Rows) appendEntry(buf []byte, before int) ([]byte, int) {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	before = min(before, len(m.rows))
	from := max(0, before-max(16, entryBytes/(8+4*m.width)))
	var places []int32
	for at := int32(from); at < int32(before); at++ {
		if anyLost(m.residual(at)) {
			places = append(places, at)
		}
	}
	if len(places) == 0 {
		return buf, from
	}
	buf = append(buf, entryRows)
	buf = appendText(buf, m.job)
	buf = binary.LittleEndian.AppendUint64(buf, m.keys)
	buf = append(buf, byte(m.dtype))
	buf = binary.AppendUvarint(buf, uint64(m.width))
	buf = binary.AppendUvarint(buf, uint64(len(places)))
	for _, at := range places {
		buf = binary.LittleEndian.AppendUint64(buf, m.rows[at].id)
		for _, x := range m.residual(at) {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
	}
	return buf, from
}

// fileArrays are the sparse tensors of a file, as far as it was read.
type fileArrays map[rowsKey]*Rows

// rows reads an entry of rows, which with all entries before it may cost left bytes.
func (r *fileReader) rows(arrays fileArrays, left *int64) error {
	var k rowsKey
	k.job = string(r.next(r.length(maxOwner)))
	if key := r.next(8); key != nil {
		k.keys = binary.LittleEndian.Uint64(key)
	}
	d, width, n := tensor.DType(r.byte()), r.length(1<<40), r.length(1<<40)
	if r.err != nil || !d.Valid() || !d.Float() || width == 0 {
		return errDamaged
	}
	m := arrays[k]
	if m == nil {
		if m = newRows(new(ledger), k, d, width, true); m.cost()+rowCost(width) > *left || len(arrays) >= maxArrays {
			return errNoRoom
		}
		*left -= m.cost()
		arrays[k] = m
	}
	if m.dtype != d || m.width != width {
		return errDamaged
	}
	for range n {
		b := r.next(8 + 4*width)
		if b == nil {
			return errDamaged
		}
		id := binary.LittleEndian.Uint64(b)
		at, ok := m.places[id]
		if !ok {
			if *left -= rowCost(width); *left < 0 {
				return errNoRoom
			}
			at = m.insert(id)
		}
		residual := m.residual(at)
		tensor.ToFloat32(residual, b[8:], tensor.Float32)
		for _, x := range residual {
			if x-x != 0 { // a NaN or infinity would never go away
				return errDamaged
			}
		}
	}
	return nil
}

// restoreRows takes in the sparse tensors that were saved, unless they have come since.
func (s *Store) restoreRows(saved fileArrays) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, m := range saved {
		if s.rows[k] != nil {
			continue
		}
		m.ledger = &s.ledger
		for at := m.order.Oldest(); at != lru.None; at = m.order.Newer(at) {
			m.rows[at].used = s.now()
		}
		s.addRows(m)
	}
}
