package receive

import (
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/tensor"
)

// A decoder has the slots that the peer has declared on one connection, and makes elements of their blocks.
type decoder struct {
	env    *path.Env
	codecs coder.Codecs
	slots  map[uint32]*slot
}

// A slot is a decoder and the shape of its blocks. It keeps no more of its declaration than it needs: a peer may
// declare very many.
type slot struct {
	coder.Turns
	codec      string // without its parameters
	role       tensor.Role
	dtype      tensor.DType
	bytes      int // of a block's elements
	dec        codecs.Decoder
	maxEncoded int
	lengthened int           // bytes that a short form is made longer in; 0: no block may have that form
	took       time.Duration // that decoding takes, the shortest of late; set in turn
}

// A block is one block of a tensor, from its frame until its delivery.
type block struct {
	slot    *slot
	turn    coder.Ticket
	encoded []byte // pooled, the frame's body: form and encoding
	data    []byte // pooled: the elements
	err     error
	ref     frame.ValueRef // a shared value; the fields above are not set
	mask    tensor.Mask    // of data, before it is delivered
	parts   bool           // data is to have the parts that encoded names, the body of a Parts frame; slot is not set
}

// declare sets a slot from the body of a Declare frame.
func (d *decoder) declare(id uint32, body []byte) error {
	decl, err := frame.ParseDeclaration(body)
	if err != nil {
		return err
	}
	c, err := d.codecs.Get(decl.Codec)
	if err != nil {
		return fmt.Errorf("%w: declare: %w", frame.ErrFrame, err)
	}
	dec, err := c.NewDecoder(decl.DType, decl.N)
	if err != nil {
		return fmt.Errorf("%w: declare %s for %d %v: %w", frame.ErrFrame, decl.Codec, decl.N, decl.DType, err)
	}
	if d.slots == nil {
		d.slots = map[uint32]*slot{}
	}
	s := &slot{codec: coder.Name(c.String()), role: decl.Role, dtype: decl.DType, bytes: decl.Size(), dec: dec, maxEncoded: coder.MaxEncoded(c, &decl), took: time.Hour}
	if _, _, fills := codecs.FillOf(c); fills {
		s.lengthened = s.maxEncoded
	}
	d.slots[id] = s
	return nil
}

// slot returns a slot that was declared.
func (d *decoder) slot(id uint32) (*slot, error) {
	if s := d.slots[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: slot %d was not declared", frame.ErrFrame, id)
}

// limit returns how long the body of a frame may be.
func (d *decoder) limit(k frame.Kind, id uint32) (int, error) {
	switch k {
	case frame.Bytes:
		return frame.MaxBytes, nil
	case frame.Declare, frame.Ref, frame.Mask:
		return frame.MaxSmall, nil
	case frame.Block:
		s, err := d.slot(id)
		if err != nil {
			return 0, err
		}
		return 1 + coder.SumLen + s.maxEncoded, nil
	case frame.Gather, frame.Parts:
		return frame.MaxBlock, nil
	}
	return 0, nil
}

// block makes a block of a Block frame, whose body it takes over. The block must have size bytes. Its turn must come.
func (d *decoder) block(f frame.Frame, size int) (block, error) {
	s, err := d.slot(f.Slot)
	switch {
	case err != nil:
	case len(f.Body) == 0:
		err = fmt.Errorf("%w: block without a form", frame.ErrFrame)
	case s.bytes != size:
		err = fmt.Errorf("%w: block of %d bytes where its Gather frame has %d", frame.ErrFrame, s.bytes, size)
	}
	if err != nil {
		d.env.Buffers.Put(f.Body)
		return block{}, err
	}
	return block{slot: s, turn: s.Next(), encoded: f.Body, data: d.env.Buffers.Get(size)}, nil
}

// elements sets the block's elements.
func (d *decoder) elements(b *block) error {
	form, encoding := b.encoded[0], b.encoded[1:]
	var flips uint32
	var err error
	if form == frame.FormSummed || form == frame.FormSummedShort {
		if flips, encoding, err = coder.TakeFlips(b.slot.dtype, b.slot.bytes, encoding); err != nil {
			return err
		}
		form = map[byte]byte{frame.FormSummed: frame.FormCoded, frame.FormSummedShort: frame.FormShort}[form]
	}
	if form == frame.FormShort && b.slot.lengthened > 0 {
		err = coder.DecodeShort(b.data, b.slot.dec, encoding, 0, b.slot.lengthened, b.slot.codec, d.env.Buffers)
	} else {
		err = coder.Decode(b.data, form, b.slot.dec, encoding, b.slot.codec)
	}
	if err != nil || flips == 0 {
		return err
	}
	coder.Flip(b.slot.dtype, b.data, flips)
	return nil
}

// decode sets the block's elements, in its turn. Any core may call it.
func (d *decoder) decode(b *block) {
	b.turn.Begin()
	defer b.turn.End()
	begin := time.Now()
	b.err = d.elements(b)
	took := time.Since(begin)
	b.slot.sawDecoding(took)
	d.env.Metrics.Decoded(b.slot.codec, b.slot.role, took)
	d.env.Buffers.Put(b.encoded)
	b.encoded = nil
}

// sawDecoding takes note of how long decoding took. The shortest time counts: most of the rest is the scheduler's.
func (s *slot) sawDecoding(took time.Duration) { s.took = min(took, s.took+s.took/64+1) }
