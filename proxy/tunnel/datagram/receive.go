package datagram

import (
	"container/heap"
	"fmt"
	"slices"
)

const (
	// maxGaps bounds the pieces of a record with gaps between them, which take memory and time. crumb bounds the pieces
	// of a short record: one for so many bytes. Fragments of a sender have 64 bytes or end a record or a packet, so
	// that it leaves fewer.
	maxGaps = 2048
	crumb   = 32
	// maxFences bounds the fences that are known and were not handed on. The tunnel has a handful in the life of a
	// connection.
	maxFences = 64
)

// An inRecord is a record that has come in part.
type inRecord struct {
	order Order
	data  []byte // the whole record's length
	have  spans
	whole bool // all has come; it waits for others
}

// A receiving puts records together and hands them on in an order that their Orders allow.
type receiving struct {
	next    uint64               // number of the first record that was not handed on
	passed  passed               // records from next on that were handed on
	records map[uint64]*inRecord // the others that have come in part
	fences  []uint64             // numbers of known fences that were not handed on, ascending
	inTurn  numbers              // whole records that wait until all before them were handed on
	free    numbers              // whole records of order Free that wait for a fence
	held    int                  // bytes of the records that were not taken
	window  int                  // that held must not pass
	ready   [][]byte             // handed on, not taken
	taken   uint64               // bytes of all records that were taken
	ended   bool                 // the End record was handed on
	memory  func(n int) []byte
}

// limit returns the largest sum of the lengths of all begun records.
func (r *receiving) limit() uint64 { return r.taken + uint64(r.window) }

// fragment takes a part of a record, which it copies.
func (r *receiving) fragment(f fragment) error {
	if f.record >= r.next+maxAhead {
		return fmt.Errorf("%w: record %d comes before record %d is whole", ErrPacket, f.record, r.next)
	}
	if f.record < r.next || r.passed.has(f.record) {
		return nil
	}
	x := r.records[f.record]
	switch {
	case x == nil:
		var err error
		if x, err = r.begin(&f); err != nil {
			return err
		}
	case x.whole:
		return nil
	case len(x.data) != f.total || x.order != f.order:
		return fmt.Errorf("%w: record %d has %d bytes of order %d, and had %d of order %d", ErrPacket, f.record, f.total, f.order, len(x.data), x.order)
	}
	copy(x.data[f.offset:], f.data)
	x.have.add(uint64(f.offset), uint64(f.offset+len(f.data)))
	if len(x.have) > min(maxGaps, f.total/crumb+2) {
		return fmt.Errorf("%w: record %d of %d bytes comes in %d pieces with gaps", ErrPacket, f.record, f.total, len(x.have))
	}
	if !x.have.has(0, uint64(len(x.data))) {
		return nil
	}
	x.whole, x.have = true, nil
	if x.order == Free {
		heap.Push(&r.free, f.record)
	} else {
		heap.Push(&r.inTurn, f.record)
	}
	r.handOn()
	return nil
}

// begin makes room for the record of a fragment.
func (r *receiving) begin(f *fragment) (*inRecord, error) {
	if f.total > r.window-r.held {
		return nil, fmt.Errorf("%w: over %d bytes of records are on their way", ErrPacket, r.window)
	}
	at, known := slices.BinarySearch(r.fences, f.record)
	if f.order >= Fence && !known {
		r.fences = slices.Insert(r.fences, at, f.record)
	} else if f.order < Fence && known {
		return nil, fmt.Errorf("%w: record %d of order %d was said to be a fence", ErrPacket, f.record, f.order)
	}
	if f.fence >= r.next { // else it was handed on, or there is none
		if x := r.records[f.fence]; x != nil && x.order < Fence || r.passed.has(f.fence) {
			return nil, fmt.Errorf("%w: record %d names record %d as its fence, which is none", ErrPacket, f.record, f.fence)
		}
		if at, known := slices.BinarySearch(r.fences, f.fence); !known {
			r.fences = slices.Insert(r.fences, at, f.fence)
		}
	}
	if len(r.fences) > maxFences {
		return nil, fmt.Errorf("%w: over %d fences are on their way", ErrPacket, maxFences)
	}
	r.held += f.total
	x := &inRecord{order: f.order, data: r.memory(f.total)}
	r.records[f.record] = x
	return x, nil
}

// handOn hands on the whole records whose turn it is. It looks at no other.
func (r *receiving) handOn() {
	for {
		switch {
		case len(r.inTurn) > 0 && r.inTurn[0] == r.next:
			r.give(heap.Pop(&r.inTurn).(uint64))
		case len(r.free) > 0 && (len(r.fences) == 0 || r.free[0] < r.fences[0]):
			r.give(heap.Pop(&r.free).(uint64))
		default:
			return
		}
	}
}

// give hands a record on.
func (r *receiving) give(number uint64) {
	x := r.records[number]
	if x.order == End {
		r.ended = true
		r.held -= len(x.data)
		r.taken += uint64(len(x.data))
	} else {
		r.ready = append(r.ready, x.data)
	}
	if x.order >= Fence { // the first one that is known, since all records before it were handed on
		r.fences = slices.Delete(r.fences, 0, 1)
	}
	delete(r.records, number)
	r.passed.set(number, true)
	for r.passed.has(r.next) {
		r.passed.set(r.next, false)
		r.next++
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

// passed is a set of numbers. No two of them are maxAhead or more apart.
type passed [maxAhead / 64]uint64

func (p *passed) has(number uint64) bool { return p[number%maxAhead/64]>>(number%64)&1 == 1 }

func (p *passed) set(number uint64, in bool) {
	word := &p[number%maxAhead/64]
	if *word &^= 1 << (number % 64); in {
		*word |= 1 << (number % 64)
	}
}

// numbers is a heap, whose first number is the lowest.
type numbers []uint64

func (n numbers) Len() int           { return len(n) }
func (n numbers) Less(i, j int) bool { return n[i] < n[j] }
func (n numbers) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *numbers) Push(x any)        { *n = append(*n, x.(uint64)) }
func (n *numbers) Pop() any {
	list := *n
	last := list[len(list)-1]
	*n = list[:len(list)-1]
	return last
}
