package datagram

import (
	"fmt"
	"slices"
)

// maxGaps bounds the pieces of a record with gaps between them, which take memory and time. Fragments of a sender have 64 bytes or end a
// record or a packet, so that it leaves fewer.
const maxGaps = 8192

// An inRecord is a record of which something has come.
type inRecord struct {
	order Order
	fence uint64
	data  []byte // the whole record's length
	have  spans
	whole bool // all has come; it waits for others
	given bool // it was handed on
}

// A receiving puts records together and hands them on in an order that their Orders allow.
type receiving struct {
	next    uint64 // number of the first record that was not handed on
	records map[uint64]*inRecord
	fences  []uint64 // numbers of known fences that were not handed on, ascending
	whole   []uint64 // numbers of records that are whole and wait, ascending
	held    int      // bytes of the records that were not handed on
	window  int      // that held must not pass
	ready   [][]byte // handed on, not taken
	taken   uint64   // bytes of all records that were taken
	ended   bool     // the End record was handed on
}

// limit returns the largest sum of the lengths of all begun records.
func (r *receiving) limit() uint64 { return r.taken + uint64(r.window) }

// fragment takes a part of a record, which it copies.
func (r *receiving) fragment(f fragment) error {
	x := r.records[f.record]
	switch {
	case f.record < r.next:
		return nil
	case f.record >= r.next+maxAhead:
		return fmt.Errorf("%w: record %d comes before record %d is whole", ErrPacket, f.record, r.next)
	case x == nil:
		if r.held += f.total; r.held > r.window {
			return fmt.Errorf("%w: over %d bytes of records are on their way", ErrPacket, r.window)
		}
		x = &inRecord{order: f.order, fence: f.fence, data: make([]byte, f.total)}
		r.records[f.record] = x
		if f.order >= Fence {
			i, _ := slices.BinarySearch(r.fences, f.record)
			r.fences = slices.Insert(r.fences, i, f.record)
		}
	case x.given || x.whole:
		return nil
	case len(x.data) != f.total || x.order != f.order:
		return fmt.Errorf("%w: record %d has %d bytes of order %d, and had %d of order %d", ErrPacket, f.record, f.total, f.order, len(x.data), x.order)
	}
	copy(x.data[f.offset:], f.data)
	x.have.add(uint64(f.offset), uint64(f.offset+len(f.data)))
	if len(x.have) > maxGaps {
		return fmt.Errorf("%w: record %d comes in over %d pieces with gaps", ErrPacket, f.record, maxGaps)
	}
	if !x.have.has(0, uint64(len(x.data))) {
		return nil
	}
	x.whole, x.have = true, nil
	if r.may(f.record, x) {
		r.give(f.record, x)
		r.rescan()
		return nil
	}
	i, _ := slices.BinarySearch(r.whole, f.record)
	r.whole = slices.Insert(r.whole, i, f.record)
	return nil
}

// may reports whether a whole record may be handed on.
func (r *receiving) may(number uint64, x *inRecord) bool {
	if x.order != Free {
		return number == r.next
	}
	if len(r.fences) > 0 && r.fences[0] < number {
		return false
	}
	return x.fence < r.next || r.given(x.fence)
}

func (r *receiving) given(number uint64) bool {
	x := r.records[number]
	return x != nil && x.given
}

// give hands a record on.
func (r *receiving) give(number uint64, x *inRecord) {
	if x.order == End {
		r.ended = true
		r.held -= len(x.data)
		r.taken += uint64(len(x.data))
	} else {
		r.ready = append(r.ready, x.data)
	}
	if x.order >= Fence {
		i, _ := slices.BinarySearch(r.fences, number)
		r.fences = slices.Delete(r.fences, i, i+1)
	}
	x.given, x.data = true, nil
	for r.given(r.next) {
		delete(r.records, r.next)
		r.next++
	}
}

// rescan hands on the records that waited for the one that was handed on last.
func (r *receiving) rescan() {
	for i := 0; i < len(r.whole); {
		number := r.whole[i]
		x := r.records[number]
		if r.may(number, x) {
			r.whole = slices.Delete(r.whole, i, i+1)
			r.give(number, x)
			i = 0
			continue
		}
		if x.order >= Fence { // nothing behind it may pass
			return
		}
		i++
	}
}

// take returns the next record; nil: none is there.
func (r *receiving) take() []byte {
	if len(r.ready) == 0 {
		return nil
	}
	b := r.ready[0]
	r.ready[0] = nil
	r.ready = r.ready[1:]
	r.held -= len(b)
	r.taken += uint64(len(b))
	return b
}
