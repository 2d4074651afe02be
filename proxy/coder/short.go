package coder

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

// Short is the name under which hellos list, among codecs, that a proxy understands Blocks of the form frame.FormShort.
//
// A gradient that is mostly zeros, as that of an embedding, is small without loss. An encoding that has a code for each
// value, zero or not, is larger. The short form leaves the codes of zeros out, and changes nothing in the encoding that
// the codec then gets:
//
//	fill        the byte that stands for values that are zero
//	period      uvarint, in words of 4 bytes: the first of so many words is expected to be 0, and all others to be fill; 0: all are fill
//	length      uvarint, of the encoding in bytes
//	1,024 words 4 bytes: a bit for each group of 32 words, from the lowest on: 1 if a word of it is not as expected
//	            for each such group 4 bytes: a bit for each of its words, and then the words that are not as expected
//	...         the next 1,024 words; and after the last word the rest of the encoding, fewer than 4 bytes
const Short = "short-blocks"

const (
	wordLen    = 4
	groupWords = 32
	minShort   = 256 // bytes of an encoding that the short form is for
	shortLooks = 16  // words that are looked at first
	shortHits  = 2   // of them, that must be codes of zeros
)

// A filling is how the encoding of zeros looks.
type filling struct {
	word   uint32
	period int // in words; 0: none
}

// at returns the expected word i.
func (f filling) at(i int) uint32 {
	if f.period > 0 && i%f.period == 0 {
		return 0
	}
	return f.word
}

// shortens reports whether the short form of an encoding is likely to be shorter, by a look at a few words: it costs
// next to nothing where few values are zero.
func shortens(c codecs.Codec, encoding []byte) bool {
	fill, _, ok := codecs.FillOf(c)
	words := len(encoding) / wordLen
	if !ok || len(encoding) < minShort {
		return false
	}
	hits := 0
	for j := range uint8(shortLooks) {
		// The order has no stride, which the processor would take for a stream to fetch ahead from.
		k := int(bits.Reverse8(j) >> 4)
		i := min((2*k+1)*words/(2*shortLooks)+k, words-1) // not at even distances, at which scales stand
		if binary.LittleEndian.Uint32(encoding[wordLen*i:]) == uint32(fill)*0x01010101 {
			hits++
		}
	}
	return hits >= shortHits
}

const (
	zeroLooks = 16 // elements that are looked at first,
	zeroHits  = 14 // of them, that must be zero
	fewest    = 32 // one of so many elements that are not zero makes a block smaller without loss than in the short form
)

// NearlyZero reports whether so few of a block's elements are not zero that it is smaller without loss than by c in the
// short form: a rest of each earlier value follows in the next encodings with feedback.
func NearlyZero(c codecs.Codec, d tensor.DType, data []byte) bool {
	n := len(data) / wordLen
	if _, _, ok := codecs.FillOf(c); !ok || d != tensor.Float32 || n < zeroLooks {
		return false
	}
	hits := 0
	for k := range zeroLooks {
		if binary.LittleEndian.Uint32(data[wordLen*(k*n/zeroLooks):]) == 0 {
			hits++
		}
	}
	if hits < zeroHits {
		return false
	}
	other := 0
	for i := range n {
		if binary.LittleEndian.Uint32(data[wordLen*i:]) != 0 {
			other++
		}
	}
	return other*fewest < n
}

// Buffers hands out memory for a moment.
type Buffers interface {
	Get(n int) []byte
	Put(b []byte)
}

// Shorten puts the short form in the place of an encoding by c, the bytes of body from begin on. It reports false, and
// body is as it was, if that is not shorter. Everything that makes or counts blocks calls it.
func Shorten(c codecs.Codec, body []byte, begin int, buffers Buffers) ([]byte, bool) {
	encoding := body[begin:]
	if !shortens(c, encoding) {
		return body, false
	}
	room := buffers.Get(len(encoding))
	defer buffers.Put(room)
	short, ok := appendShort(room[:0], c, encoding)
	if !ok {
		return body, false
	}
	return append(body[:begin], short...), true
}

// ShortenBlock is Shorten for the body of a Block, whose form it sets. The form is the byte of body at form,
// frame.FormCoded or frame.FormSummed, and head bytes stand between it and the encoding. DecodeShort reverses it.
func ShortenBlock(c codecs.Codec, body []byte, form, head int, buffers Buffers) []byte {
	body, ok := Shorten(c, body, form+1+head, buffers)
	switch {
	case !ok:
	case body[form] == frame.FormSummed:
		body[form] = frame.FormSummedShort
	default:
		body[form] = frame.FormShort
	}
	return body
}

// DecodeShort sets dst from src, a body of frame.FormShort without its form, as Decode does from one of
// frame.FormCoded. The short form begins after head bytes of src, and the encoding that it stands for has at most limit
// bytes.
func DecodeShort(dst []byte, dec codecs.Decoder, src []byte, head, limit int, codec string, buffers Buffers) error {
	room := buffers.Get(head + limit)
	defer buffers.Put(room)
	encoding, err := Lengthen(append(room[:0], src[:head]...), src[head:], limit)
	if err != nil {
		return err
	}
	return Decode(dst, frame.FormCoded, dec, encoding, codec)
}

// appendShort appends the short form of an encoding by c, for which shortens must have been true. It reports false, and
// the result does not matter, if that is not shorter.
func appendShort(dst []byte, c codecs.Codec, encoding []byte) ([]byte, bool) {
	fill, period, _ := codecs.FillOf(c)
	f, begin := filling{uint32(fill) * 0x01010101, period}, len(dst)
	dst = binary.AppendUvarint(append(dst, fill), uint64(period))
	dst = binary.AppendUvarint(dst, uint64(len(encoding)))
	words := len(encoding) / wordLen
	for from := 0; from < words; from += groupWords * groupWords {
		if len(dst)-begin >= len(encoding) {
			return dst, false
		}
		at, groups := len(dst), uint32(0)
		dst = append(dst, 0, 0, 0, 0)
		for g := from; g < min(from+groupWords*groupWords, words); g += groupWords {
			inner, mask := len(dst), uint32(0)
			dst = append(dst, 0, 0, 0, 0)
			for i := g; i < min(g+groupWords, words); i++ {
				if w := binary.LittleEndian.Uint32(encoding[wordLen*i:]); w != f.at(i) {
					mask |= 1 << (i - g)
					dst = binary.LittleEndian.AppendUint32(dst, w)
				}
			}
			if mask == 0 {
				dst = dst[:inner]
				continue
			}
			binary.LittleEndian.PutUint32(dst[inner:], mask)
			groups |= 1 << ((g - from) / groupWords)
		}
		binary.LittleEndian.PutUint32(dst[at:], groups)
	}
	dst = append(dst, encoding[wordLen*words:]...)
	return dst, len(dst)-begin < len(encoding)
}

// Lengthen appends the encoding of a short form to dst. It appends no more than limit bytes, whatever src is.
func Lengthen(dst, src []byte, limit int) ([]byte, error) {
	bad := func(why string) ([]byte, error) { return dst, fmt.Errorf("%w: a short form %s", frame.ErrFrame, why) }
	if len(src) < 1 {
		return bad("without a byte")
	}
	f := filling{word: uint32(src[0]) * 0x01010101}
	period, n := binary.Uvarint(src[1:])
	if n <= 0 || period > uint64(limit) {
		return bad("has no period")
	}
	f.period, src = int(period), src[1+n:]
	length, n := binary.Uvarint(src)
	if n <= 0 || length > uint64(limit) {
		return bad("has no length, or a greater one than the codec's encodings")
	}
	src = src[n:]
	word := func() (w uint32, ok bool) {
		if len(src) < wordLen {
			return 0, false
		}
		w, src = binary.LittleEndian.Uint32(src), src[wordLen:]
		return w, true
	}
	words := int(length) / wordLen
	for from := 0; from < words; from += groupWords * groupWords {
		groups, ok := word()
		if last := (min(words-from, groupWords*groupWords) + groupWords - 1) / groupWords; !ok || bits.Len32(groups) > last {
			return bad("is cut short, or has too many groups")
		}
		for g := from; g < min(from+groupWords*groupWords, words); g += groupWords {
			mask := uint32(0)
			if groups>>((g-from)/groupWords)&1 == 1 {
				if mask, ok = word(); !ok || bits.Len32(mask) > words-g {
					return bad("is cut short, or has too many words")
				}
			}
			for i := g; i < min(g+groupWords, words); i++ {
				w := f.at(i)
				if mask>>(i-g)&1 == 1 {
					if w, ok = word(); !ok {
						return bad("is cut short")
					}
				}
				dst = binary.LittleEndian.AppendUint32(dst, w)
			}
		}
	}
	if len(src) != int(length)-wordLen*words {
		return bad("has another end")
	}
	return append(dst, src...), nil
}
