package reference

import (
	"crypto/subtle"
	"errors"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// An exact coder is around a codec that loses nothing.

// integer is the type as which differences of elements of type d are coded.
func integer(d tensor.DType) tensor.DType {
	switch d.Size() {
	case 2:
		return tensor.Uint16
	case 4:
		return tensor.Uint32
	case 8:
		return tensor.Uint64
	}
	return tensor.Uint8
}

// known reports whether it is known where an element ends.
func known(d tensor.DType) bool { return d != tensor.NoDType }

// laneFor is laneOf; bytes of unknown width are looked at as words, in which every width has planes of its own.
func laneFor(d tensor.DType) lane {
	if !known(d) {
		d = tensor.Uint64
	}
	return laneOf(d)
}

type exactEncoder struct {
	pair
	lane           lane
	bits, integers codecs.Encoder // of elements as they are or their XOR, and of differences
}

func newExactEncoder(c codecs.Codec, p pair) (codecs.Encoder, error) {
	e := &exactEncoder{pair: p, lane: laneFor(p.dtype)}
	var err error
	if e.bits, err = c.NewEncoder(p.dtype, p.n); err != nil {
		return nil, err
	}
	e.integers, err = c.NewEncoder(integer(p.dtype), p.n)
	return e, err
}

func (e *exactEncoder) Append(dst, src []byte) ([]byte, error) {
	e.check(src)
	out, err := e.encode(dst, src)
	if err != nil {
		return dst, err
	}
	e.keep(src)
	return out, nil
}

func (e *exactEncoder) encode(dst, src []byte) ([]byte, error) {
	held := e.from.acquire()
	defer e.from.release()
	f := formFull
	if held != nil {
		s := samples.Get().(*sample)
		f = s.choose(e.lane, src, held.bytes, known(e.dtype))
		samples.Put(s)
	}
	out, err := e.as(f, dst, src, held)
	if f != formFull && errors.Is(err, codecs.ErrUnsuited) { // codecs of keys take no differences
		return e.as(formFull, dst, src, nil)
	}
	return out, err
}

// as appends src in a form.
func (e *exactEncoder) as(f form, dst, src []byte, held *value) ([]byte, error) {
	dst = append(dst, byte(f))
	if f == formFull {
		return e.bits.Append(dst, src)
	}
	dst = held.appendName(dst)
	b := takeBuffer(len(src))
	defer putBuffer(b)
	if f == formXOR {
		subtle.XORBytes(*b, src, held.bytes)
		return e.bits.Append(dst, *b)
	}
	e.lane.differ(*b, src, held.bytes)
	return e.integers.Append(dst, *b)
}

type exactDecoder struct {
	pair
	lane           lane
	bits, integers codecs.Decoder
}

func newExactDecoder(c codecs.Codec, p pair) (codecs.Decoder, error) {
	d := &exactDecoder{pair: p, lane: laneFor(p.dtype)}
	var err error
	if d.bits, err = c.NewDecoder(p.dtype, p.n); err != nil {
		return nil, err
	}
	d.integers, err = c.NewDecoder(integer(p.dtype), p.n)
	return d, err
}

func (d *exactDecoder) Decode(dst, src []byte) error { return d.deliver(dst, src, d.decode) }

func (d *exactDecoder) decode(dst, src []byte) error {
	h, rest, err := parseHeader(src)
	if err != nil {
		return err
	}
	if h.form == formFull {
		return d.bits.Decode(dst, rest)
	}
	if h.form != formXOR && (h.form != formDifference || !known(d.dtype)) {
		return errForm(h.form)
	}
	d.from.acquire()
	defer d.from.release()
	held, err := d.from.find(h.version, h.hash)
	if err != nil {
		return err
	}
	if h.form == formXOR {
		err = d.bits.Decode(dst, rest)
		subtle.XORBytes(dst, dst, held.bytes)
		return err
	}
	err = d.integers.Decode(dst, rest)
	d.lane.restore(dst, dst, held.bytes)
	return err
}
