package datagram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	numberLen = 3 // bytes of a packet's number that it begins with: the low ones

	framePadding  = 0
	framePing     = 1
	frameAck      = 2
	frameFragment = 16 // with the order of the record, and the flags
	orderMask     = 3
	flagFence     = 4 // of a fragment: the distance to a fence follows
	flagRest      = 8 // of a fragment: its data is the rest of the packet, without a length

	maxLengthLen   = 3       // bytes of a fragment's length
	maxAckRanges   = 64      // in one frame
	maxFragmentLen = 1 << 16 // longer than any datagram
)

// A fragment is a part of a record, as a packet carries it.
type fragment struct {
	record uint64 // number
	order  Order
	fence  uint64 // number of the last fence before the record that is not known to have arrived; 0: none
	total  int    // length of the record
	offset int
	data   []byte
	rest   bool // nothing follows it in its packet
}

// An ack is the acknowledgement that a packet carries.
type ack struct {
	delay  time.Duration // since the largest packet came
	limit  uint64        // sum of the lengths of the records that may be begun
	ranges spans         // packets that came, the newest ranges of them
}

// ErrPacket is wrapped by the error of a packet that this package would not write. A packet is authentic, so the other
// end is faulty.
var ErrPacket = errors.New("packet broken")

// putNumber writes the low bytes of a packet's number.
func putNumber(dst []byte, number uint64) []byte {
	for i := range numberLen {
		dst = append(dst, byte(number>>(8*(numberLen-1-i))))
	}
	return dst
}

// appendAck appends an ack frame. room is for how many bytes it may take; older ranges are left out.
func (a *ack) appendAck(dst []byte, room int) []byte {
	n := len(a.ranges)
	last := a.ranges[n-1]
	further := min(n-1, maxAckRanges, max(0, room-40)/20)
	dst = append(dst, frameAck)
	dst = binary.AppendUvarint(dst, last.end-1)
	dst = binary.AppendUvarint(dst, uint64(a.delay/time.Microsecond))
	dst = binary.AppendUvarint(dst, a.limit)
	dst = binary.AppendUvarint(dst, uint64(further))
	dst = binary.AppendUvarint(dst, last.end-1-last.first)
	for i := n - 2; i >= n-1-further; i-- {
		r := a.ranges[i]
		dst = binary.AppendUvarint(dst, last.first-r.end-1)
		dst = binary.AppendUvarint(dst, r.end-r.first-1)
		last = r
	}
	return dst
}

// wholeNumber returns the number nearest to next that ends with the low bytes, as RFC 9000, section A.3, has it.
func wholeNumber(low, next uint64) uint64 {
	const window = 1 << (8 * numberLen)
	number := next&^(window-1) | low
	switch {
	case number+window/2 <= next:
		return number + window
	case number > next+window/2 && number >= window:
		return number - window
	}
	return number
}

// head returns the maximum of bytes that a fragment's frame takes besides its data. With rest it takes maxLengthLen
// less.
func (f *fragment) head() (n int) {
	n = 1 + uvarintLen(f.record) + uvarintLen(uint64(f.total)) + uvarintLen(uint64(f.offset)) + maxLengthLen
	if f.fence > 0 {
		n += uvarintLen(f.distance())
	}
	return n
}

// distance returns how far back the fence is.
func (f *fragment) distance() uint64 { return f.record - f.fence }

func (f *fragment) append(dst []byte) []byte {
	kind := frameFragment | byte(f.order)
	if f.fence > 0 {
		kind |= flagFence
	}
	if f.rest {
		kind |= flagRest
	}
	dst = binary.AppendUvarint(append(dst, kind), f.record)
	if f.fence > 0 {
		dst = binary.AppendUvarint(dst, f.distance())
	}
	dst = binary.AppendUvarint(dst, uint64(f.total))
	dst = binary.AppendUvarint(dst, uint64(f.offset))
	if !f.rest {
		dst = binary.AppendUvarint(dst, uint64(len(f.data)))
	}
	return append(dst, f.data...)
}

// isFragment reports whether a frame of a kind is a fragment.
func isFragment(kind byte) bool { return kind&^(orderMask|flagFence|flagRest) == frameFragment }

func uvarintLen(v uint64) (n int) {
	for n = 1; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// A packetReader takes a packet apart. After a failed read it has an error, and all reads return zeros.
type packetReader struct {
	rest []byte
	err  error
}

func (r *packetReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrPacket, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

func (r *packetReader) number() (n uint64) {
	for _, b := range r.bytes(numberLen) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (r *packetReader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.fail("it ends %d bytes early", n-len(r.rest))
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *packetReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint reads a number of at most limit.
func (r *packetReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit {
		r.fail("number over %d or cut off", limit)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// ack reads the fields of an ack frame into a. next is the number of the packet that the receiver of the frame sends
// next.
func (r *packetReader) ack(a *ack, next uint64) {
	largest := r.uvarint(1<<48 - 1)
	if largest >= next {
		r.fail("it acknowledges packet %d, and the next is %d", largest, next)
		return
	}
	a.delay = time.Duration(r.uvarint(1<<32)) * time.Microsecond
	a.limit = r.uvarint(1 << 62)
	further := r.uvarint(maxAckRanges)
	a.ranges = a.ranges[:0]
	end := largest + 1
	for i := range further + 1 {
		if i > 0 {
			gap := r.uvarint(1<<48) + 1
			if gap >= end {
				r.fail("its ranges go below 0")
				return
			}
			end -= gap
		}
		count := r.uvarint(1<<48) + 1
		if count > end {
			r.fail("its ranges go below 0")
			return
		}
		a.ranges = append(a.ranges, span{end - count, end})
		end -= count
	}
}

// fragment reads the fields of a fragment of a kind.
func (r *packetReader) fragment(kind byte) (f fragment) {
	f.record, f.order = r.uvarint(1<<48), Order(kind&orderMask)
	if kind&flagFence > 0 {
		d := r.uvarint(1 << 48)
		if d == 0 || d >= f.record {
			r.fail("a fence %d records before record %d", d, f.record)
			return f
		}
		f.fence = f.record - d
	}
	f.total = int(r.uvarint(MaxRecord))
	f.offset = int(r.uvarint(MaxRecord))
	length := len(r.rest)
	if f.rest = kind&flagRest > 0; !f.rest {
		length = int(r.uvarint(maxFragmentLen))
	}
	f.data = r.bytes(length)
	switch {
	case r.err != nil:
	case f.record == 0 || len(f.data) == 0 || f.offset+len(f.data) > f.total:
		r.fail("record %d of order %d has bytes %d to %d of %d", f.record, f.order, f.offset, f.offset+len(f.data), f.total)
	}
	return f
}
