package proxy

import (
	"bufio"
	"encoding/binary"
	"math"

	"github.com/gradproxy/gradproxy/tensor"
)

// Saved residuals of sparse tensors.

// savedAtOnce is about how many bytes of rows are copied at a time, so that senders do not wait for all of them.
const savedAtOnce = 1 << 20

// saveRows writes what is owed to rows that outlive their connections.
func (ms *memories) saveRows(out *bufio.Writer) error {
	ms.mu.Lock()
	var lasting []*rowMemory
	for _, m := range ms.rows {
		if m.lasts {
			lasting = append(lasting, m)
		}
	}
	ms.mu.Unlock()
	var buf []byte
	for _, m := range lasting {
		// From the last to the first: a row may be moved to a place before its own, and is then saved twice, but never not.
		for before := math.MaxInt; before > 0; {
			if buf, before = m.appendSaved(buf[:0], before); len(buf) == 0 {
				continue
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendSaved appends an entry of rows at places below before, and returns below which there are others. It appends nothing
// if none of them is owed anything.
func (m *rowMemory) appendSaved(buf []byte, before int) ([]byte, int) {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	before = min(before, len(m.rows))
	from := max(0, before-max(16, savedAtOnce/(8+4*m.width)))
	var places []int32
	for at := int32(from); at < int32(before); at++ {
		if owes(m.residual(at)) {
			places = append(places, at)
		}
	}
	if len(places) == 0 {
		return buf, from
	}
	buf = append(buf, savedRows)
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

// savedArrays are the sparse tensors of a file, as far as it was read.
type savedArrays map[rowKey]*rowMemory

// rows reads an entry of rows, which with all before may cost left bytes.
func (s *savedReader) rows(arrays savedArrays, left *int64) error {
	var k rowKey
	k.job = string(s.next(s.length(maxJobName)))
	if key := s.next(8); key != nil {
		k.keys = binary.LittleEndian.Uint64(key)
	}
	d, width, n := tensor.DType(s.byte()), s.length(1<<40), s.length(1<<40)
	if s.err != nil || !d.Valid() || !d.Float() || width == 0 {
		return errDamaged
	}
	m := arrays[k]
	if m == nil {
		if m = new(memories).newRowMemory(k, d, width, true); m.cost()+rowCost(width) > *left || len(arrays) >= maxRowMemories {
			return errNoRoom
		}
		*left -= m.cost()
		arrays[k] = m
	}
	if m.dtype != d || m.width != width {
		return errDamaged
	}
	for range n {
		b := s.next(8 + 4*width)
		if b == nil {
			return errDamaged
		}
		id := binary.LittleEndian.Uint64(b)
		at, ok := m.slots[id]
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

// restoreRows takes in what was saved of sparse tensors of which nothing is known yet.
func (ms *memories) restoreRows(saved savedArrays) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for k, m := range saved {
		if ms.rows[k] != nil {
			continue
		}
		m.among = ms
		for at := m.oldest; at != none; at = m.rows[at].newer {
			m.rows[at].used = ms.now()
		}
		ms.addRows(m)
	}
}
