package lossless

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/gradproxy/gradproxy/tensor"
)

const (
	// A chunk of 256 KiB is as fast, one of 64 KiB 10 % slower; ratios differ by less than 0.5 % down to 16 KiB. Planes
	// stay within the 128 KiB that a Huffman coded block may have.
	chunkBytes = 128 << 10
	group      = 8 // elements that are split at once
)

// A plan says how a chunk will be coded. Its slices are of the chunk or of the scratch that made it.
type plan struct {
	form  form
	first uint64    // with formRising
	zeros []byte    // the map, with formSparse
	n     int       // elements in the chunk
	body  []byte    // the elements that go into planes
	rest  []byte    // elements after the last whole group
	odd   []byte    // bytes of the chunk that make no element
	how   [8]coding // of each plane
}

// plan looks at a chunk and reports whether coding it is likely to pay, at a small part of the cost of doing it.
func (s *scratch) plan(chunk []byte, d tensor.DType) (p plan, ok bool) {
	if len(chunk) < 4*group {
		return p, false
	}
	if bytes.Equal(chunk[8:], chunk[:len(chunk)-8]) {
		return plan{form: formRepeat, body: chunk[:8]}, true
	}
	if p.form = formOf(d); p.form == formStored {
		p.form = s.guess(chunk)
	}
	w := p.form.width()
	p.n = len(chunk) / w
	body := chunk[:p.n*w]
	p.odd = chunk[p.n*w:]
	if p.form == formInt32 || p.form == formInt64 {
		signed := d == tensor.Int32 || d == tensor.Int64
		gaps := s.differences.room(len(body))
		if first, ok := differences(gaps, body, w, signed); ok {
			p.form, p.first, body = p.form|formRising, first, gaps
		}
	}
	if s.sample.take(p.form, body); s.sample.zeros*zerosWorth >= s.sample.n && w > 1 {
		p.zeros = s.zeros.room(mapLen(p.n))
		left := mapZeros(p.zeros, body, w)
		packed := s.packed.room(left * w)
		pack(packed, body, p.zeros, w)
		p.form, body = p.form|formSparse, packed
		s.sample.take(p.form, body)
	}
	groups := len(body) / (group * w) * group * w
	p.body, p.rest = body[:groups], body[groups:]
	return p, s.choose(&p) || p.form&formSparse != 0
}

// zerosWorth is 1 over the part of elements that must be zero for their map to pay: a bit for each element against the
// cost of a zero in the planes.
const zerosWorth = 16

// choose sets how each plane is coded, and reports whether any is.
func (s *scratch) choose(p *plan) (any bool) {
	f := p.form & formKind
	n := len(p.body) / f.width()
	for i := range f.width() {
		exponent := i == f.width()-1 && (f == formFloat16 || f == formFloat32)
		p.how[i] = s.sample.coding(i, n, s.level, exponent)
		any = any || p.how[i].kind != planeRaw
	}
	if f == formFloat32 {
		if p.how[0].kind != planeRaw || p.how[1].kind != planeRaw {
			p.form += formFloat32Split - formFloat32
		} else {
			p.how[1], p.how[2] = p.how[2], p.how[3]
		}
	}
	return any
}

// appendChunk appends the encoding of a chunk of size bytes, or reports that it does not get shorter.
func (s *scratch) appendChunk(dst []byte, p *plan, size int) (_ []byte, ok bool) {
	begin := len(dst)
	dst = append(dst, byte(p.form))
	if p.form == formRepeat {
		return append(dst, p.body...), true
	}
	w := p.form.width()
	if p.form&formRising != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, p.first)[:len(dst)+w]
	}
	if p.form&formSparse != 0 {
		dst = s.appendMap(dst, p.zeros, p.n)
	}
	dst = s.appendPlanes(dst, p)
	dst = append(append(dst, p.rest...), p.odd...)
	return dst, len(dst)-begin <= size-size/64
}

// appendStored appends b as stored chunks; it begins where a chunk does.
func appendStored(dst, b []byte) []byte {
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		dst = append(append(dst, byte(formStored)), b[:n]...)
		b = b[n:]
	}
	return dst
}

var errForm = errors.New("unknown form")

// readChunk sets dst to the chunk that r begins with, or fails r.
func (s *scratch) readChunk(dst []byte, r *reader) {
	f := form(r.byte())
	kind := f & formKind
	switch {
	case r.err != nil:
		return
	case f == formStored:
		copy(dst, r.take(len(dst)))
		return
	case f == formRepeat:
		repeat(dst, r.take(8))
		return
	case kind <= formRepeat, kind >= forms, f&^(formKind|formSparse|formRising) != 0,
		f&formRising != 0 && kind != formInt32 && kind != formInt64, f&formSparse != 0 && kind == formBytes:
		r.fail(errForm)
		return
	}
	w := f.width()
	n := len(dst) / w
	body, odd := dst[:n*w], dst[n*w:]
	var first uint64
	if f&formRising != 0 {
		if b := r.take(w); b != nil {
			var x [8]byte
			copy(x[:], b)
			first = binary.LittleEndian.Uint64(x[:])
		}
	}
	left, packed := n, body
	var m []byte
	if f&formSparse != 0 {
		m, left = s.readMap(r, n)
		packed = s.packed.room(left * w)
	}
	if r.err != nil {
		return
	}
	groups := left / group * group
	s.readPlanes(packed[:groups*w], r, f, groups)
	copy(packed[groups*w:], r.take((left-groups)*w))
	copy(odd, r.take(len(odd)))
	if r.err != nil {
		return
	}
	if f&formSparse != 0 {
		unpack(body, packed, m, w)
	}
	if f&formRising != 0 {
		sum(body, w, first)
	}
}

// repeat fills dst with b.
func repeat(dst, b []byte) {
	if b == nil {
		return
	}
	for n := copy(dst, b); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// A reader takes an encoding apart. After an error, which it keeps, it gives nothing.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

// take returns the next n bytes, or nil.
func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint24() int {
	if b := r.take(3); b != nil {
		return int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	}
	return 0
}

func putUint24(b []byte, n int) { b[0], b[1], b[2] = byte(n), byte(n>>8), byte(n>>16) }
