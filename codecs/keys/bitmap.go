package keys

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
	"github.com/gradproxy/gradproxy/codecs/internal/huffman"
)

// Bitmap is for keys that lie close together. It has a bit for each integer between the first key and the last, set if
// the integer is a key, in bytes of eight bits and Huffman's code of their frequencies; where nearly all integers are
// keys, it lists the others. Keys that take more bytes so are written as by Rice.
//
// Wire:
//
//	form   1 byte: 0, and then the Rice code of the keys; 1 or 2, and then
//	first  the first key, as unsigned LEB128
//
// and in form 1, where no more integers between the first key and the last are missing than there are keys,
//
//	count    the number of missing integers, as unsigned LEB128
//	missing  the missing integers, each less the first key, as by Rice
//
// or in form 2, where the last key is at most four times as far from the first as there are keys,
//
//	bits     the table of the code, as package huffman describes it, and the bytes. Bit i of them, from the most significant
//	         of the first on, is 1 if first+1+i is a key; behind the last key there are zeros
type Bitmap struct{}

// Forms of a Bitmap's encoding.
const (
	formRice = iota
	formMissing
	formBytes
)

// maxApart is the maximum of integers for each key where keys are written in bytes.
const maxApart = 4

// String implements Coding.
func (Bitmap) String() string { return "bitmap" }

// MaxLen implements Coding.
func (Bitmap) MaxLen(n int) int { return 1 + Rice{}.MaxLen(n) }

// bitmaps recycles the memory that Bitmap needs beside keys.
var bitmaps = sync.Pool{New: func() any { return new(bitmapRoom) }}

type bitmapRoom struct {
	missing []uint64
	code    huffman.Code
}

// Append implements Coding.
func (Bitmap) Append(dst []byte, keys []uint64) []byte {
	if len(keys) == 0 {
		return dst
	}
	begin := len(dst)
	dst = Rice{}.Append(append(dst, formRice), keys)
	n := uint64(len(keys))
	span := keys[n-1] - keys[0]
	if n == 1 || span > maxApart*n {
		return dst
	}
	room := bitmaps.Get().(*bitmapRoom)
	defer bitmaps.Put(room)
	if span-(n-1) <= n {
		end := len(dst)
		dst = keepShorter(room.appendMissing(dst, keys), begin, end)
	}
	end := len(dst)
	return keepShorter(room.appendBytes(dst, keys), begin, end)
}

// keepShorter leaves behind begin the shorter of two encodings: the bytes from there to end, and the bytes after end.
func keepShorter(dst []byte, begin, end int) []byte {
	if len(dst)-end >= end-begin {
		return dst[:end]
	}
	return slices.Delete(dst, begin, end)
}

func (room *bitmapRoom) appendMissing(dst []byte, keys []uint64) []byte {
	missing := room.missing[:0]
	for i := 1; i < len(keys); i++ {
		for k := keys[i-1] + 1; k < keys[i]; k++ {
			missing = append(missing, k-keys[0])
		}
	}
	room.missing = missing
	dst = binary.AppendUvarint(append(dst, formMissing), keys[0])
	return Rice{}.Append(binary.AppendUvarint(dst, uint64(len(missing))), missing)
}

func (room *bitmapRoom) appendBytes(dst []byte, keys []uint64) []byte {
	var counts [256]uint32
	for b := range bytesOf(keys) {
		counts[b]++
	}
	room.code.Init(counts[:])
	w := bitio.NewWriter(binary.AppendUvarint(append(dst, formBytes), keys[0]))
	room.code.WriteTable(&w)
	for b := range bytesOf(keys) {
		room.code.Write(&w, int(b))
	}
	return w.Bytes()
}

// bytesOf returns the bytes that say which integers after the first key are keys.
func bytesOf(keys []uint64) func(yield func(byte) bool) {
	return func(yield func(byte) bool) {
		at, b := uint64(0), byte(0)
		for _, k := range keys[1:] {
			bit := k - keys[0] - 1
			for ; at < bit/8; at++ {
				if !yield(b) {
					return
				}
				b = 0
			}
			b |= 0x80 >> (bit % 8)
		}
		yield(b)
	}
}

// Decode implements Coding.
func (c Bitmap) Decode(keys []uint64, src []byte) (used int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if len(src) == 0 {
		return 0, errShort(c, 0, len(keys))
	}
	if src[0] == formRice {
		used, err = Rice{}.Decode(keys, src[1:])
		return 1 + used, err
	}
	first, n := binary.Uvarint(src[1:])
	if n <= 0 {
		return 0, corrupt(c, "its first key is no number of 64 bits")
	}
	keys[0] = first
	head := 1 + n
	room := bitmaps.Get().(*bitmapRoom)
	defer bitmaps.Put(room)
	switch src[0] {
	case formMissing:
		used, err = room.decodeMissing(keys, src[head:])
	case formBytes:
		used, err = room.decodeBytes(keys, src[head:])
	default:
		err = corrupt(c, "its form is %d", src[0])
	}
	return head + used, err
}

// decodeMissing sets the keys behind the first.
func (room *bitmapRoom) decodeMissing(keys []uint64, src []byte) (used int, err error) {
	var c Bitmap
	count, head := binary.Uvarint(src)
	if head <= 0 || count > uint64(len(keys)) || count > 8*uint64(len(src)) {
		return 0, corrupt(c, "it has no number of missing integers, or one too great for %d keys", len(keys))
	}
	first := keys[0]
	if count+uint64(len(keys)-1) > math.MaxUint64-first {
		return 0, errDescent(c, len(keys)-1)
	}
	missing := slices.Grow(room.missing[:0], int(count))[:count]
	room.missing = missing
	if used, err = (Rice{}).Decode(missing, src[head:]); err != nil {
		return 0, err
	}
	next := uint64(0)
	for i := range keys {
		for len(missing) > 0 && missing[0] == next && i > 0 {
			missing = missing[1:]
			next++
		}
		keys[i] = first + next
		next++
	}
	if len(missing) > 0 {
		return 0, corrupt(c, "an integer is missing that is not between the first key and the last")
	}
	return head + used, nil
}

// decodeBytes sets the keys behind the first.
func (room *bitmapRoom) decodeBytes(keys []uint64, src []byte) (used int, err error) {
	var c Bitmap
	r := bitio.NewReader(src)
	if !room.code.ReadTable(&r, 256) {
		return 0, corrupt(c, "its table of bytes is none")
	}
	i := 1
	for at := 0; i < len(keys); at += 8 {
		if r.Over() || at > maxApart*len(keys) {
			return 0, errEnd(c, len(keys))
		}
		for b := uint8(room.code.Read(&r)); b != 0; i++ {
			bit := bits.LeadingZeros8(b)
			b &^= 0x80 >> bit
			if i == len(keys) {
				return 0, errEnd(c, len(keys))
			}
			if keys[i] = keys[0] + 1 + uint64(at+bit); keys[i] <= keys[0] {
				return 0, errDescent(c, i)
			}
		}
	}
	used, ok := r.Close()
	if !ok {
		return 0, errEnd(c, len(keys))
	}
	return used, nil
}
