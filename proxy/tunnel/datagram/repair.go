package datagram

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// A packet that is lost comes a round trip later, and the step of a job waits for it if it is one of a burst's last.
// So, on a path that loses packets, a repair follows the end of a burst for each repairGroup of the last packets: the
// XOR of the fragments that they carry, from which the other end makes any one of them. Repairs ask for no
// acknowledgement, and a packet that was made from one still counts as lost, and leaves again. In TestSteps, at 1 % of
// loss and 80 ms, they take 40 % off a step with bursts of 200 kB.
const (
	trailerRepair = 2 // begins the bytes behind a padding frame that are a repair; see trailerMarks

	repairGroup  = 10
	maxRepair    = 16   // packets of a group that another version may have
	repairKept   = 130  // packets at most that are kept at either end: the last ones
	repairPacket = 1500 // bytes of a datagram at most: longer ones, which cross no WAN, are not kept
	repairHead   = 32   // bytes of a repair's packet beside the XOR, at most

	repairLoss = 500      // repairs leave where more than one byte in so many was lost,
	repairSeen = 8        // these were so many packets,
	repairPath = 64 << 10 // and the path holds so many bytes: else the time of a round trip is short beside that of the bytes
)

// A kept is the fragments of a packet.
type kept struct {
	number uint64
	data   []byte
}

// A repairRing keeps the fragments of the last packets, each in memory of its own that is used again.
type repairRing struct {
	all  []kept
	next int
}

func (r *repairRing) keep(number uint64, data []byte) {
	if len(r.all) < repairKept {
		r.all = append(r.all, kept{})
		r.next = len(r.all) - 1
	}
	k := &r.all[r.next]
	k.number, k.data = number, append(k.data[:0], data...)
	r.next = (r.next + 1) % repairKept
}

func (r *repairRing) of(number uint64) []byte {
	for i := range r.all {
		if r.all[i].number == number {
			return r.all[i].data
		}
	}
	return nil
}

// A repairing makes repairs of packets that leave.
type repairing struct {
	never bool // in tests
	sent  repairRing
	since []uint64 // numbers of the packets that have left since the last repairs, and are kept
	dueAt time.Duration
	sum   []byte // scratch
}

// noted keeps a packet that leaves. wait is how long after the last one repairs leave.
func (r *repairing) noted(now, wait time.Duration, number uint64, fragments []byte) {
	r.sent.keep(number, fragments)
	if r.since = append(r.since, number); len(r.since) > repairKept {
		r.since = r.since[len(r.since)-repairKept:]
	}
	r.dueAt = now + wait
}

// next appends the repair of the oldest packets that have none. Their numbers lie within 64.
func (r *repairing) next(dst []byte) []byte {
	first, mask, n, length := r.since[0], uint64(0), 0, uint16(0)
	stride := min((len(r.since)+repairGroup-1)/repairGroup, 6) // 60 numbers fit the mask
	r.sum = r.sum[:0]
	// The packets of a group do not lie side by side: losses come together.
	var left []uint64
	for i, number := range r.since {
		if i%stride != 0 || number-first >= 64 || n == repairGroup {
			left = append(left, number)
			continue
		}
		data := r.sent.of(number)
		mask |= 1 << (number - first)
		length ^= uint16(len(data))
		r.sum = xor(r.sum, data)
		n++
	}
	r.since = left
	dst = append(dst, framePadding, trailerRepair)
	dst = binary.AppendUvarint(dst, first)
	dst = binary.AppendUvarint(dst, mask)
	dst = binary.BigEndian.AppendUint16(dst, length)
	return append(dst, r.sum...)
}

// xor adds data to sum, which grows as needed.
func xor(sum, data []byte) []byte {
	for len(sum) < len(data) {
		sum = append(sum, 0)
	}
	for i, b := range data {
		sum[i] ^= b
	}
	return sum
}

// A repair is the content of one.
type repair struct {
	first, mask uint64
	length      uint16
	sum         []byte // of the packet
}

// repair reads the bytes behind a padding frame. ok: they are one.
func (r *packetReader) repair() (p repair, ok bool) {
	if len(r.rest) == 0 || r.rest[0] != trailerRepair {
		return p, false
	}
	r.byte()
	p.first, p.mask = r.uvarint(1<<48), r.uvarint(1<<64-1)
	if b := r.bytes(2); b != nil {
		p.length = binary.BigEndian.Uint16(b)
	}
	p.sum = r.rest
	if n := bits.OnesCount64(p.mask); n > maxRepair {
		r.fail("a repair of %d packets", n)
	}
	return p, r.err == nil
}

// mend returns the fragments of the one packet of a repair that has not come; nil: none is missing, or too many are.
func (r *repairRing) mend(p *repair, came func(number uint64) bool) []byte {
	missing := uint64(0)
	for m := p.mask; m != 0; m &= m - 1 {
		number := p.first + uint64(bits.TrailingZeros64(m))
		if data := r.of(number); data == nil {
			if missing++; missing > 1 || came(number) {
				return nil
			}
		}
	}
	if missing != 1 {
		return nil
	}
	out, length := append([]byte(nil), p.sum...), p.length
	for m := p.mask; m != 0; m &= m - 1 {
		if data := r.of(p.first + uint64(bits.TrailingZeros64(m))); data != nil {
			out = xor(out, data)
			length ^= uint16(len(data))
		}
	}
	if int(length) > len(out) {
		return nil
	}
	return out[:length]
}
