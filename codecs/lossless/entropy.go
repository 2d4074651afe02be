package lossless

import (
	"bytes"
	"errors"
	"slices"

	"github.com/klauspost/compress/huff0"
)

// How a coded plane begins.
const (
	planeRaw = iota
	planeRepeat
	planeHuffman
	planeFourBits
)

// A coding is how a plane is coded if that is shorter: planeRaw is not at all.
type coding struct {
	kind byte
	base byte // of planeFourBits
}

const (
	worthBits = 7.9 // a plane of more bits a byte is not coded
	fastBits  = 4.5 // at level Fast

	// A plane has as many bits a byte at least as its most frequent byte value, and that of one in so many has more
	// than fastBits.
	fastRarity = 23
	treeBytes  = 24 // the cost of a Huffman tree and its header, about

	oneStream = 1 << 10 // planes under this are one stream
)

// coding chooses for plane i of n bytes, by the sample.
func (s *sample) coding(i, n int, l Level, exponent bool) coding {
	if l == Fast && n >= sampleMax {
		if c, ok := s.obvious(i, exponent); ok {
			return c
		}
	}
	return s.byBits(i, n, l, exponent)
}

// obvious returns the result of byBits for most planes of many bytes at level Fast, at a part of its cost.
func (s *sample) obvious(i int, exponent bool) (c coding, ok bool) {
	if exponent {
		base, inside := s.window(i)
		return coding{planeFourBits, byte(base)}, inside*8 >= s.n*7 && s.maxCount(i) < s.n
	}
	return coding{}, s.maxCount(i)*fastRarity < s.n
}

func (s *sample) byBits(i, n int, l Level, exponent bool) coding {
	bits, symbols := s.bits(i)
	if bits > worthBits || float64(n)*(8-bits)/8 < float64(treeBytes+symbols/4) {
		return coding{}
	}
	if l == Fast && symbols > 1 {
		if base, inside := s.window(i); exponent && inside*8 >= s.n*7 {
			return coding{planeFourBits, byte(base)}
		}
		if bits > fastBits {
			return coding{}
		}
	}
	return coding{kind: planeHuffman}
}

// appendPlanes appends the planes of p's body: a byte that tells which are coded, the uncoded ones, and the coded ones.
func (s *scratch) appendPlanes(dst []byte, p *plan) []byte {
	n := len(p.body) / p.form.width()
	count, raw, coded := p.form.planes(), 0, 0
	mask := byte(0)
	for i := range count {
		if p.how[i].kind == planeRaw {
			raw += p.form.planeLen(i, n)
		} else {
			coded += p.form.planeLen(i, n)
			mask |= 1 << i
		}
	}
	dst = append(slices.Grow(dst, 1+raw), mask)
	rawRoom, codedRoom := dst[len(dst):len(dst)+raw], s.coded.room(coded)
	dst = dst[:len(dst)+raw]
	var planes [8][]byte
	for i := range count {
		k := p.form.planeLen(i, n)
		if mask>>i&1 == 0 {
			planes[i], rawRoom = rawRoom[:k], rawRoom[k:]
		} else {
			planes[i], codedRoom = codedRoom[:k], codedRoom[k:]
		}
	}
	s.split(p.form, &planes, p.body)
	for i := range count {
		if mask>>i&1 == 1 {
			dst = s.appendPlane(dst, planes[i], p.how[i])
		}
	}
	return dst
}

// readPlanes sets dst to n elements from the planes with which r begins, or fails r.
func (s *scratch) readPlanes(dst []byte, r *reader, f form, n int) {
	mask, count := r.byte(), f.planes()
	if mask>>count != 0 {
		r.fail(errForm)
	}
	if r.err != nil {
		return
	}
	coded := 0
	for i := range count {
		coded += f.planeLen(i, n) * int(mask>>i&1)
	}
	room := s.coded.room(coded)
	var planes [8][]byte
	for i := range count {
		k := f.planeLen(i, n)
		if mask>>i&1 == 0 {
			planes[i] = r.take(k)
		} else {
			planes[i], room = room[:k], room[k:]
		}
	}
	for i := range count {
		if mask>>i&1 == 1 {
			s.readPlane(r, planes[i])
		}
	}
	if r.err == nil {
		s.join(f, dst, &planes)
	}
}

// appendPlane appends a coded plane.
func (s *scratch) appendPlane(dst, p []byte, how coding) []byte {
	switch {
	case len(p) > 0 && bytes.Equal(p[1:], p[:len(p)-1]):
		return append(dst, planeRepeat, p[0])
	case how.kind == planeFourBits:
		if next, ok := appendFourBits(append(dst, planeFourBits), p, how.base); ok {
			return next
		}
	}
	compress := huff0.Compress4X
	if len(p) < oneStream {
		compress = huff0.Compress1X
	}
	s.encoder.Reuse = huff0.ReusePolicyNone
	out, _, err := compress(p, &s.encoder)
	if err != nil { // too short, or too random
		return append(append(dst, planeRaw), p...)
	}
	at := len(dst)
	dst = append(dst, planeHuffman, 0, 0, 0)
	putUint24(dst[at+1:], len(out))
	return append(dst, out...)
}

var (
	errPlane  = errors.New("a plane of unknown coding")
	errLength = errors.New("a plane has another length")
	errTree   = errors.New("a plane's Huffman tree or streams are broken")
)

// readPlane sets dst to the coded plane that r begins with, or fails r.
func (s *scratch) readPlane(r *reader, dst []byte) {
	switch r.byte() {
	case planeRaw:
		copy(dst, r.take(len(dst)))
	case planeRepeat:
		repeat(dst, r.take(1))
	case planeHuffman:
		s.readHuffman(r, dst, r.take(r.uint24()))
	case planeFourBits:
		readFourBits(r, dst)
	default:
		r.fail(errPlane)
	}
}

func (s *scratch) readHuffman(r *reader, dst, src []byte) {
	if r.err != nil {
		return
	}
	_, streams, err := huff0.ReadTable(src, &s.decoder)
	if err != nil {
		r.fail(errTree)
		return
	}
	d := s.decoder.Decoder()
	decompress := d.Decompress4X
	if len(dst) < oneStream {
		decompress = d.Decompress1X
	}
	out, err := decompress(dst[:0:len(dst)], streams)
	switch {
	case err != nil:
		r.fail(errTree)
	case len(out) != len(dst):
		r.fail(errLength)
	}
}
