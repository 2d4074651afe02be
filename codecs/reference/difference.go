package reference

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/gradproxy/gradproxy/tensor"
)

// Differences of integers, eight bytes at a time: a 64-bit word has lanes of the element's width, which sums and
// differences must not carry between (section 2-18 of Warren, Hacker's Delight).

// A lane is how elements lie in a word.
type lane struct {
	bits  int    // 8, 16, 32 or 64
	float uint64 // the highest bit of each lane if elements are floats, else 0
}

func laneOf(d tensor.DType) lane {
	l := lane{bits: 8 * d.Size()}
	if d.Float() {
		l.float = l.high()
	}
	return l
}

// high returns the highest bit of each lane.
func (l lane) high() uint64 { return math.MaxUint64 / (1<<l.bits - 1) << (l.bits - 1) }

// differ sets dst to the differences of x's elements to r's, modulo 2^bits, in zig-zag: 0, -1, 1, -2, … become 0, 1, 2,
// 3, … Floats count as the integers that have their order: below zero, all bits but the sign's are inverted.
func (l lane) differ(dst, x, r []byte) {
	switch l.bits {
	case 8:
		differ[uint8](dst, x, r, l.float)
	case 16:
		differ[uint16](dst, x, r, l.float)
	case 32:
		differ[uint32](dst, x, r, l.float)
	case 64:
		differ[uint64](dst, x, r, l.float)
	}
}

// restore sets dst to the elements with the differences z to r's. z may be dst.
func (l lane) restore(dst, z, r []byte) {
	switch l.bits {
	case 8:
		restore[uint8](dst, z, r, l.float)
	case 16:
		restore[uint16](dst, z, r, l.float)
	case 32:
		restore[uint32](dst, z, r, l.float)
	case 64:
		restore[uint64](dst, z, r, l.float)
	}
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

// lanes returns, for lanes of type T, the place of their highest bit, and a word with the highest bits of all lanes.
func lanes[T unsigned]() (shift uint, high uint64) {
	var t T
	shift = 8*uint(unsafe.Sizeof(t)) - 1
	return shift, math.MaxUint64 / uint64(^t) << shift
}

// pairs returns the whole pairs of words in b, at any alignment. They share b's memory.
func pairs(b []byte) [][16]byte {
	return unsafe.Slice((*[16]byte)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/16)
}

func get(b []byte) uint64    { return binary.LittleEndian.Uint64(b) }
func put(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

func differ[T unsigned](dst, x, r []byte, float uint64) {
	shift, _ := lanes[T]()
	d, a, b := pairs(dst), pairs(x), pairs(r)
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		p, s := order(get(a[i][:8]), float, shift), order(get(b[i][:8]), float, shift)
		put(d[i][:8], differWord[T](p, s))
		q, t := order(get(a[i][8:]), float, shift), order(get(b[i][8:]), float, shift)
		put(d[i][8:], differWord[T](q, t))
	}
	if i := 16 * len(d); i < len(dst) {
		var d, a, b [16]byte
		copy(a[:], x[i:])
		copy(b[:], r[i:])
		differ[T](d[:], a[:], b[:], float)
		copy(dst[i:], d[:])
	}
}

func restore[T unsigned](dst, z, r []byte, float uint64) {
	shift, _ := lanes[T]()
	d, a, b := pairs(dst), pairs(z), pairs(r)
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		p, s := get(a[i][:8]), order(get(b[i][:8]), float, shift)
		put(d[i][:8], order(restoreWord[T](p, s), float, shift))
		q, t := get(a[i][8:]), order(get(b[i][8:]), float, shift)
		put(d[i][8:], order(restoreWord[T](q, t), float, shift))
	}
	if i := 16 * len(d); i < len(dst) {
		var d, a, b [16]byte
		copy(a[:], z[i:])
		copy(b[:], r[i:])
		restore[T](d[:], a[:], b[:], float)
		copy(dst[i:], d[:])
	}
}

// order exchanges floats and their integers in a's lanes. float has the highest bits of the lanes, or is 0 if elements
// are integers.
func order(a, float uint64, shift uint) uint64 {
	n := a & float
	return a ^ (n - n>>(shift&63))
}

// differWord returns a - b in zig-zag, lane by lane.
func differWord[T unsigned](a, b uint64) uint64 {
	shift, high := lanes[T]()
	d := a | high - b&^high               // the difference, but for the highest bits
	n := ^(d ^ a ^ b) & high              // the highest bits
	return d&^high<<1 ^ (n<<1 - n>>shift) // n<<1 - n>>shift: ones in the lanes that have a bit in n
}

// restoreWord reverses it: it returns b plus the difference z.
func restoreWord[T unsigned](z, b uint64) uint64 {
	shift, high := lanes[T]()
	n := z << shift & high
	d := z>>1&^high ^ (n<<1 - n>>shift)
	return d&^high + b&^high ^ (d^b)&high
}

// align sets dst, which may be x, to x with every lane turned left by one bit, which gives the exponents of most floats
// a byte of their own. It leaves bytes after the last whole word alone.
func (l lane) align(dst, x []byte) {
	s, high := l.bits-1, l.high()
	low := high >> s
	for i := 0; i+8 <= len(dst); i += 8 {
		v := binary.LittleEndian.Uint64(x[i:])
		binary.LittleEndian.PutUint64(dst[i:], v<<1&^low|v>>s&low)
	}
}
