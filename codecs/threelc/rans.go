package threelc

import "encoding/binary"

// Range asymmetric numeral systems, rANS ([Duda]), of quartic bytes, in words of 16 bits. The state is at least lowest
// and less than lowest<<16; that it is 2^8 times total keeps the cost of rounding below a thousandth.
//
// It is our own since the well-kept libraries' coders write a table of frequencies with each block, of up to 243 here:
// the fse of klauspost/compress took 1.07 times the entropy where 1 % of the values are no zeros, and its huff0 1.1 and
// more.
//
// [Duda]: https://arxiv.org/abs/1311.2540v2
const (
	lowest   = 1 << 24
	stateLen = 5 // bytes
	wordLen  = 2
)

// ransEncode writes packed to the end of room and returns that part of it, or nil if there is not room enough. The
// state comes first, and then the words in the order in which the decoder wants them: the encoder goes backwards.
func ransEncode(room, packed []byte, table *[256]interval) []byte {
	x, at := uint64(lowest), len(room)
	for i := len(packed) - 1; i >= 0; i-- {
		s := table[packed[i]]
		freq := uint64(s.freq)
		if x >= freq<<24 { // lowest/total·2^16·freq: the next state would be too large
			if at -= wordLen; at < 0 {
				return nil
			}
			binary.LittleEndian.PutUint16(room[at:], uint16(x))
			x >>= 16
		}
		q := x / freq
		x = q<<totalBits + x - q*freq + uint64(s.start)
	}
	if at -= stateLen; at < 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(room[at:], uint32(x))
	room[at+4] = byte(x >> 32)
	return room[at:]
}

// ransDecode sets packed from the code with which src begins and returns the length of that code; ok is false if src
// ends before, or if ransEncode cannot have made it. symbol has the bytes of numbers, from the numbers of five zeros
// on.
func ransDecode(packed, src []byte, table *[256]interval, symbol []byte) (used int, ok bool) {
	if len(src) < stateLen {
		return 0, false
	}
	x := uint64(binary.LittleEndian.Uint32(src)) | uint64(src[4])<<32
	at := stateLen
	zeros := uint64(table[fiveZeros].freq)
	for i := range packed {
		slot := x & (total - 1)
		if slot < zeros {
			packed[i] = fiveZeros
			x = x>>totalBits*zeros + slot
		} else {
			b := symbol[slot-zeros]
			packed[i] = b
			s := table[b]
			x = x>>totalBits*uint64(s.freq) + slot - uint64(s.start)
		}
		if x < lowest {
			if len(src)-at < wordLen {
				return at, false
			}
			x = x<<16 | uint64(binary.LittleEndian.Uint16(src[at:]))
			at += wordLen
		}
	}
	return at, x == lowest
}
