package threelc

import (
	"encoding/binary"
	"math/bits"
)

// Zero-run encoding, section 3.3: k bytes of five zeros each, 2 <= k <= 14, become one byte of 243 + (k-2).
const (
	fiveZeros = 121 // 1·81 + 1·27 + 1·9 + 1·3 + 1
	firstRun  = 243 // the first byte that is no quartic one: a run of two
	minRun    = 2
	maxRun    = minRun + 255 - firstRun
)

// runCode is the byte for k bytes of five zeros.
var runCode = [16]byte{1: fiveZeros, 2: firstRun, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255}

// lead is the number of bytes by which dst may begin before src when they share memory.
const lead = 8

// shorten sets dst to src with its runs replaced, counted from the left and each as long as it can be, and returns the
// length. dst must be as long as src. It may be the memory from lead bytes before src on: writes stay behind reads.
func shorten(dst, src []byte) int {
	w, i, run := shortenTiles(dst, src)
	if i == 0 {
		w, i = shortenWords(dst, src)
	}
	return shortenRest(dst, src, w, i, run)
}

// shortenWords is shorten for the first i bytes of src, and returns the number of bytes that they have become.
//
// Where runs begin and end cannot be predicted, so nothing branches on it: each turn copies up to eight bytes that
// are no run and replaces the run behind them, either of which may be empty.
func shortenWords(dst, src []byte) (w, i int) {
	const (
		each  = 0x0101010101010101
		zeros = fiveZeros * each
	)
	for i+8+16 <= len(src) {
		v := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(dst[w:], v)
		v ^= zeros
		literals := bits.TrailingZeros64((v-each)&^v&(each<<7)) / 8 // before the first byte that is 0
		w += literals
		i += literals

		run := bits.TrailingZeros64(binary.LittleEndian.Uint64(src[i:])^zeros) / 8
		more := bits.TrailingZeros64(binary.LittleEndian.Uint64(src[i+8:])^zeros) / 8
		if run < 8 {
			more = 0
		}
		run += min(more, maxRun-8)
		dst[w] = runCode[run&15]
		i += run
		if run > 0 {
			w++
		}
	}
	return w, i
}

// shortenRest goes on where i bytes of src, without a run of zeros at their end, have become w bytes. It returns the
// length of dst.
func shortenRest(dst, src []byte, w, i, run int) int {
	for i < len(src) || run > 0 {
		for run < maxRun && i < len(src) && src[i] == fiveZeros {
			run++
			i++
		}
		if run == 0 {
			dst[w] = src[i]
			i++
		} else {
			dst[w] = runCode[run&15]
		}
		w, run = w+1, 0
	}
	return w
}
