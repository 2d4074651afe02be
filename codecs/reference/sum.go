package reference

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/scratch"
)

// A sum coder is the closed loop around a codec of values.

type sumEncoder struct {
	pair
	enc codecs.ValueEncoder
	dec codecs.ValueDecoder // decodes as the other end does
}

func newSumEncoder(m codecs.Method, p pair) (codecs.Encoder, error) {
	e := &sumEncoder{pair: p}
	var err error
	if e.enc, err = m.NewEncoder(p.n); err != nil {
		return nil, err
	}
	e.dec, err = m.NewDecoder(p.n)
	return e, err
}

// errNothing is made once: it is the answer to every block until one has travelled exactly.
var errNothing = fmt.Errorf("%w: reference: nothing is held yet", codecs.ErrUnsuited)

func (e *sumEncoder) Append(dst, src []byte) ([]byte, error) {
	e.check(src)
	var delivered []byte
	if e.to != nil {
		b := takeBuffer(len(src))
		defer putBuffer(b)
		delivered = *b
	}
	out, err := e.encode(dst, src, delivered)
	if err != nil {
		return dst, err
	}
	e.keep(delivered)
	return out, nil
}

// encode appends the encoding of src and sets delivered, unless it is nil, to the value that the other end delivers.
func (e *sumEncoder) encode(dst, src, delivered []byte) ([]byte, error) {
	held := e.from.acquire()
	defer e.from.release()
	if held == nil {
		return dst, errNothing
	}
	values := scratch.Take(e.n)
	defer scratch.Put(values)
	d := *values
	subtract(d, src, held.bytes, e.dtype)
	head := held.appendName(append(dst, byte(formSum)))
	out, err := e.enc.Append(head, d)
	if err != nil || delivered == nil {
		return out, err
	}
	if err := e.dec.Decode(d, out[len(head):]); err != nil {
		panic(fmt.Sprintf("reference: the codec does not decode its own encoding: %v", err))
	}
	add(delivered, held.bytes, d, e.dtype)
	return out, nil
}

type sumDecoder struct {
	pair
	dec codecs.ValueDecoder
}

func newSumDecoder(m codecs.Method, p pair) (codecs.Decoder, error) {
	dec, err := m.NewDecoder(p.n)
	return &sumDecoder{p, dec}, err
}

func (d *sumDecoder) Decode(dst, src []byte) error { return d.deliver(dst, src, d.decode) }

func (d *sumDecoder) decode(dst, src []byte) error {
	h, rest, err := parseHeader(src)
	if err != nil {
		return err
	}
	if h.form != formSum {
		return errForm(h.form)
	}
	d.from.acquire()
	defer d.from.release()
	held, err := d.from.find(h.version, h.hash)
	if err != nil {
		return err
	}
	values := scratch.Take(d.n)
	defer scratch.Put(values)
	if err := d.dec.Decode(*values, rest); err != nil {
		return err
	}
	add(dst, held.bytes, *values, d.dtype)
	return nil
}
