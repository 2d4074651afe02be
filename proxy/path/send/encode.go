package send

import (
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/tensor"
)

// An encoder makes the frames of blocks, on any core, and passes them on in order.
type encoder struct {
	*direction
	emit  *emitter
	slots slots
}

// assign gives a block a slot of codec, which loses nothing.
func (e *encoder) assign(b *block, codec codecs.Codec) error {
	b.text = codec.String()
	b.decl = frame.Declaration{Codec: b.text, DType: b.decl.DType, N: b.decl.N}
	s, err := e.slots.get(slotRequest{decl: b.decl, codec: codec, variable: b.variable})
	if err != nil {
		return fmt.Errorf("proxy: %s takes no block of %d %v: %w", b.text, b.decl.N, b.decl.DType, err)
	}
	b.slot = s
	return nil
}

// next gives a block its turn, and declares its slot if it is new.
func (e *encoder) next(b *block) {
	if !b.slot.declared {
		body := b.decl.Append(nil)
		b.declare = append(frame.AppendHeader(nil, frame.Declare, b.slot.id, len(body)), body...)
		b.slot.declared = true
	}
	b.turn = b.slot.Next()
}

// group has the blocks of a group encoded, in their turns, and its frames emitted.
func (e *encoder) group(g *group) error {
	if e.quick(g) {
		done, err := e.emit.pipe.Try(func() error {
			e.blocks(g)
			return e.emit.group(g, true)
		})
		if done {
			e.emit.release(g)
			e.emit.spare.keep(g)
			return err
		}
	}
	e.emit.flush()
	return e.handOver(g)
}

// handOver lets any core encode the blocks of a group.
func (e *encoder) handOver(g *group) error {
	return e.emit.pipe.Do(pipe.Item{
		Work: func() { e.blocks(g) },
		Emit: func() error { return e.emit.group(g, false) },
		Done: func() { e.emit.release(g) },
	})
}

// blocks encodes the blocks of a group that have frames of their own.
func (e *encoder) blocks(g *group) {
	for _, b := range g.blocks {
		if b.slot != nil {
			e.block(b)
		}
	}
}

// quick reports whether encoding the group is likely to take less than it costs to have another core do it.
func (e *encoder) quick(g *group) bool {
	var took time.Duration
	size := 0
	for _, b := range g.blocks {
		if b.slot != nil {
			took += b.record.Takes(b.text, len(b.data))
			size += len(b.data)
		}
	}
	return took < pipe.HandOver(size)
}

// block makes a block's frame, in its turn. If anything goes wrong with the codec, the elements travel raw.
func (e *encoder) block(b *block) {
	b.turn.Begin()
	defer b.turn.End()
	if b.around != nil {
		b.around.before(b)
		defer b.around.after(b)
	}
	begin := time.Now()
	s := b.slot
	if s.external != nil {
		s.external.residual = b.residual
	}
	b.buf = e.conn.Env.Buffers.Get(b.room)[:frame.MaxHeader]
	body, err := e.append(b)
	b.frame = frame.Front(body, frame.Block, s.id)
	took := time.Since(begin)
	switch {
	case err == nil:
		e.conn.Env.Metrics.Encoded(b.text, b.role, took)
	case !errors.Is(err, codecs.ErrUnsuited):
		e.conn.Log.Error("codec failed; its block travels raw", "codec", b.text, "err", err)
		fallthrough
	default:
		e.conn.Env.Metrics.FellBack(b.text, b.role, tensor.NoGain)
	}
	b.record.Saw(b.text, len(b.data), len(b.frame), took)
}

// append makes the body of a block's frame, behind frame.MaxHeader bytes of room.
func (e *encoder) append(b *block) (body []byte, err error) {
	s := b.slot
	if s.lock != nil { // a connection that takes the place of a broken one may have the same tensors
		s.lock.Lock()
		defer s.lock.Unlock()
	}
	m := e.measure(b)
	form := byte(frame.FormCoded)
	if s.summed != nil {
		form = frame.FormSummed
		s.summed.Room = e.conn.Env.Buffers.Get(len(b.data))
		defer e.conn.Env.Buffers.Put(s.summed.Room)
	}
	body, err = s.Encode(append(b.buf, form), frame.MaxHeader, s.enc, b.data)
	if err != nil && !errors.Is(err, codecs.ErrUnsuited) {
		clear(b.currentResidual()) // the codec may have left a part of the value there, all of which the raw block brings
	}
	if s.control != nil && b.plan.choice.Codec.Traits().ResidualRatio > 0 {
		b.sparsity = s.control.Sparsity()
	}
	if m != nil && err == nil {
		e.drift(b, m)
	}
	if err == nil {
		body = e.shorten(b, body)
	}
	return body, err
}

// shorten leaves the codes of zeros out of a block's body, if there are many and the peer understands it.
func (e *encoder) shorten(b *block, body []byte) []byte {
	if b.text != b.plan.text || e.conn.Lacks(coder.Short) {
		return body
	}
	head := 0
	if b.slot.summed != nil {
		head = coder.SumLen
	}
	return coder.ShortenBlock(b.plan.choice.Codec, body, frame.MaxHeader, head, e.conn.Env.Buffers)
}

const (
	driftEvery = 8        // of so many successive blocks of a slot one is measured
	driftMax   = 64 << 10 // elements of it, from the first, that are measured at most
)

// A measure has the squares of the norms of a block's value and of the sum of value and residual, which is encoded, of
// its first elements.
type measure struct {
	elements   int
	value, sum float64
}

// measure looks at a block that is about to be encoded. It returns nil if the block leaves no residual, or if it is not
// one of the blocks that are measured (driftEvery).
func (e *encoder) measure(b *block) *measure {
	residual := b.currentResidual()
	if residual == nil || !b.decl.DType.Float() {
		return nil
	}
	if b.slot.encoded++; b.slot.encoded%driftEvery != 1 {
		return nil
	}
	n := min(len(residual), driftMax)
	buffers := e.conn.Env.Buffers
	v := tensor.View(b.data)
	if b.decl.DType != tensor.Float32 || v == nil {
		room := buffers.Get(4 * n)
		defer buffers.Put(room)
		if v = tensor.View(room); v == nil {
			v = make([]float32, n)
		}
		tensor.ToFloat32(v[:n], b.data[:n*b.decl.DType.Size()], b.decl.DType)
	}
	m := &measure{elements: n}
	m.value, m.sum = tensor.SumNorms(v[:n], residual[:n])
	return m
}

// currentResidual returns the residual that the block's encoding takes and leaves, nil if there is none.
func (b *block) currentResidual() []float32 {
	if b.slot.external != nil {
		return b.residual
	}
	return b.slot.residual
}

// drift records two ratios of the norm of the residual that an encoding has left. Over the norm of the value, it says
// for aggregates how far the replicas may be apart. Over the norm of the sum that was encoded, it is the relative error
// of the codec.
func (e *encoder) drift(b *block, m *measure) {
	if b.sparsity > 0 {
		b.record.Adapted(b.sparsity)
		e.conn.Env.Metrics.Adapted(b.text, b.role, float64(b.sparsity))
	}
	residual := b.currentResidual()[:m.elements]
	left, _ := tensor.SquaredNorms(residual, residual)
	ratio, relative := feedback.Ratio(left, m.value), feedback.Ratio(left, m.sum)
	b.record.Drifted(ratio, relative)
	e.conn.Env.Metrics.Drifted(b.text, b.role, ratio, relative)
}
