package proxy

import (
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// A sendBlock is one block at the sender, from its first byte until its frame has left.
type sendBlock struct {
	slot   *sendSlot // nil: its value is shared
	decl   frame.Declaration
	choice policy.Choice
	text   string // of the codec
	role   tensor.Role
	record *tensors.Record
	index  int    // in its group
	data   []byte // the elements, of which filled bytes have come; the end of pooled
	pooled []byte
	filled int
	room   int             // bytes of buf
	cost   int             // bytes of the budget, for data and buf
	odd    bool            // its shape is that of a message
	flush  bool            // what its slot owes is added to it, and it travels exactly
	watch  *residual.Dense // keeps it for the next value to be compared with; nil: it is compared itself, or never
	off    int             // in its tensor
	owed   *sendSlot       // that slot, once the block has another
	rows   *rowBlock       // nil: it is dense, or what is owed to its rows waits

	declare    []byte        // Declare frame that goes before, or nil
	prev, done chan struct{} // the slot's turn: when this block's encoding may begin, and that it has ended
	paid       chan struct{} // the same of owed: when all before has been encoded
	frame      []byte        // the Block frame, within buf; or a Ref's
	buf        []byte        // pooled
}

// sendGroup sends the group, which is whole: its blocks are encoded by any core and leave in order.
func (s *sender) sendGroup() error {
	g := s.group
	s.group = group{}
	for _, b := range g.blocks {
		if b.slot == nil {
			if s.share(b) {
				continue
			}
			if err := s.makeExact(b); err != nil {
				s.release(&g)
				return err
			}
		}
		if b.watch != nil {
			b.watch.Check(b.off, b.data)
		}
		if err := s.choose(b); err != nil {
			s.release(&g)
			return err
		}
		if !b.slot.declared {
			body := b.decl.Append(nil)
			b.declare = append(frame.AppendHeader(nil, frame.Declare, b.slot.id, len(body)), body...)
			b.slot.declared = true
		}
		b.prev, b.done = b.slot.turn, make(chan struct{})
		b.slot.turn = b.done
		if b.owed != nil {
			b.paid, b.owed.turn = b.owed.turn, b.done
		}
		if b.rows != nil {
			b.rows.submit(b.done)
		}
	}
	work := func() {
		for _, b := range g.blocks {
			if b.slot != nil {
				s.encode(b)
			}
		}
	}
	if s.quick(&g) {
		done, err := s.pipe.Try(func() error {
			work()
			return s.emit(&g, s.writeMore)
		})
		if done {
			s.release(&g)
			return err
		}
	}
	s.flush()
	return s.pipe.Do(pipe.Item{
		Work: work,
		Emit: func() error { return s.emit(&g, s.write) },
		Done: func() { s.release(&g) },
	})
}

// quick reports whether encoding the group is likely to take less than it costs to have another core do it.
func (s *sender) quick(g *group) bool {
	var took time.Duration
	size := 0
	for _, b := range g.blocks {
		if b.slot != nil {
			took += b.record.Gain.Takes(len(b.data))
			size += len(b.data)
		}
	}
	return took < pipe.HandOver(size)
}

// choose settles how a block travels: as its slot says, or, if it were to lose something, exactly, or exactly and with
// what is owed.
func (s *sender) choose(b *sendBlock) error {
	switch {
	case b.rows != nil:
		return s.chooseRows(b)
	case b.slot.memory == nil:
		return nil
	case !s.mayLose(b):
		return s.makeExact(b)
	case !b.flush || b.slot.residual == nil:
		return nil
	}
	b.owed = b.slot
	return s.makeExact(b)
}

// share has the peer hold the block's value and makes the frame that refers to it; false: the block must travel by itself.
func (s *sender) share(b *sendBlock) bool {
	s.flush() // the stream of values may not take it at once
	r, fresh, ok := s.shared.cache.Peer(s.peer).Put(s.tag, cache.Put{Decl: b.decl, Data: b.data, Choice: b.choice, Role: b.role, Observe: b.record})
	if !ok {
		b.record.Refused(tensor.NoReference)
		return false
	}
	s.lossy = s.lossy || b.choice.Closed && codecs.Lossy(b.choice.Codec)
	b.frame = frame.Append(nil, frame.Frame{Kind: frame.Ref, Body: r.Append(nil)})
	if !fresh {
		b.record.Gain.Saw(len(b.data), len(b.frame), 0)
	}
	return true
}

// mayLose compares a block with the tensor's last value, just before it would lose something.
func (s *sender) mayLose(b *sendBlock) bool {
	plausible, first := b.slot.memory.Check(b.decl.Off, b.data)
	return s.noted(b, plausible, first)
}

// noted takes note of whether a block may lose something, and returns it.
func (s *sender) noted(b *sendBlock, plausible, first bool) bool {
	if !plausible && !first {
		s.shared.Metrics.FellBack(tensor.Implausible)
		b.record.Refused(tensor.Implausible)
	}
	s.lossy = s.lossy || plausible
	return plausible
}

// makeExact gives a block that was to lose something, or to be shared, a slot of a codec that loses nothing: its own if that
// does not, as of keys, else the lossless one.
func (s *sender) makeExact(b *sendBlock) error {
	if c := b.choice.Codec; !codecs.Lossy(c) && s.travelBy(b, c) == nil {
		return nil
	}
	return s.travelBy(b, s.shared.lossless)
}

// travelBy gives a block a slot of c, which loses nothing.
func (s *sender) travelBy(b *sendBlock, c codecs.Codec) error {
	exact := policy.Choice{Codec: c}
	b.text = c.String()
	b.decl = frame.Declaration{Codec: b.text, DType: b.decl.DType, N: b.decl.N}
	slot, err := s.slots.get(b.decl, exact, nil, b.odd)
	if err != nil {
		return fmt.Errorf("proxy: %s takes no block of %d %v: %w", b.text, b.decl.N, b.decl.DType, err)
	}
	b.slot = slot
	return nil
}

// encode makes the block's frame. Whatever goes wrong with the codec, the elements travel: raw.
func (s *sender) encode(b *sendBlock) {
	if b.prev != nil {
		<-b.prev
	}
	defer close(b.done)
	if b.owed != nil {
		if b.paid != nil {
			<-b.paid
		}
		b.owed.memory.Flush(b.data, b.owed.residual)
	}
	if b.rows != nil {
		b.rows.take()
		defer b.rows.give()
		if b.flush {
			residual.Flush(b.decl.DType, b.data, b.rows.owed)
		}
	}
	begin := time.Now()
	b.buf = s.shared.buffers.Get(b.room)[:frame.MaxHeader+1]
	out, err := b.slot.append(b.buf, b.data, b.rows)
	if err == nil {
		took := time.Since(begin)
		s.measureDrift(b)
		s.shared.Metrics.Encoded(b.text, b.role, took)
		out[frame.MaxHeader] = frame.FormCoded
		b.finish(out)
		b.record.Gain.Saw(len(b.data), len(b.frame), took)
		return
	}
	if !errors.Is(err, codecs.ErrUnsuited) {
		s.log.Error("codec failed; its block travels raw", "codec", b.text, "err", err)
	}
	s.shared.Metrics.FellBack(tensor.NoGain)
	out = append(b.buf, b.data...)
	out[frame.MaxHeader] = frame.FormRaw
	b.finish(out)
	b.record.Gain.Saw(len(b.data), len(b.frame), time.Since(begin))
}

func (b *sendBlock) finish(out []byte) { b.frame = frame.Front(out, frame.Block, b.slot.id) }

// append encodes src; rows is set if what is owed comes with it. A panic in a codec is an error of its slot, which is not
// used again: its state is unknown.
func (s *sendSlot) append(dst, src []byte, rows *rowBlock) (out []byte, err error) {
	if s.broken {
		return nil, codecs.ErrUnsuited
	}
	if s.memory != nil { // a connection that takes the place of a broken one may have the same tensors
		s.memory.Lock()
		defer s.memory.Unlock()
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v", p)
		}
		s.broken = err != nil && !errors.Is(err, codecs.ErrUnsuited)
	}()
	if s.loose != nil {
		return s.loose.Append(dst, src, rows.owed)
	}
	return s.enc.Append(dst, src)
}

const (
	driftEvery = 8        // how many blocks of a slot pass between two measurements of how far receivers are behind,
	driftMost  = 64 << 10 // and the most elements, a block's first, that are looked at for one
)

// measureDrift observes the norm of the block's residual over that of its value: for aggregates, how far the replicas may
// be apart.
func (s *sender) measureDrift(b *sendBlock) {
	v, residual := tensor.View(b.data), b.slot.residual
	if b.slot.loose != nil {
		residual = b.rows.owed
	}
	if residual == nil || b.decl.DType != tensor.Float32 || v == nil {
		return
	}
	if b.slot.encoded++; b.slot.encoded%driftEvery == 1 {
		n := min(len(v), driftMost)
		s.shared.Metrics.Drifted(b.text, b.role, feedback.Drift(residual[:n], v[:n]))
	}
}

// emit has write write a group's frames.
func (s *sender) emit(g *group, write func(frames ...[]byte) error) error {
	frames := make([][]byte, 0, 2*len(g.blocks)+1)
	overhead := 0
	if len(g.runs) > 1 {
		frames = append(frames, frame.Append(nil, frame.Frame{Kind: frame.Gather, Body: g.gather()}))
		overhead = len(frames[0])
	}
	for _, b := range g.blocks {
		if b.declare != nil {
			frames = append(frames, b.declare)
		}
		frames = append(frames, b.frame)
	}
	err := write(frames...)
	for _, b := range g.blocks {
		wire := len(b.frame) + len(b.declare)
		b.record.Sent(len(b.data), wire)
		s.shared.Metrics.Sent(b.text, b.role, len(b.data), wire)
	}
	if overhead > 0 {
		s.shared.Metrics.Sent(policy.Verbatim, tensor.Unknown, len(g.literals), overhead)
	}
	return err
}

// release gives back the memory of a group's blocks.
func (s *sender) release(g *group) {
	for _, b := range g.blocks {
		if b.data == nil {
			continue
		}
		s.releaseRows(b)
		s.shared.buffers.Put(b.pooled)
		s.shared.buffers.Put(b.buf)
		s.lender.Give(b.cost)
		b.data, b.pooled, b.buf, b.frame = nil, nil, nil, nil
	}
	s.lender.Give(g.paid)
	g.literals, g.paid = nil, 0
}

// spoil sends the group that waits verbatim, in stream order; the rest of its blocks will travel verbatim too. No coder
// has seen them.
func (s *sender) spoil(stalled bool) error {
	g := s.group
	if g.open == 0 {
		return nil
	}
	s.group = group{}
	for _, c := range s.cuts {
		c.block = nil
	}
	for _, b := range g.blocks {
		b.record.Sent(b.filled, b.filled)
		if stalled {
			s.shared.Metrics.FellBack(tensor.Stalled)
		}
	}
	defer s.release(&g)
	return s.verbatim(&g)
}

// verbatim sends a group's bytes in stream order, as Bytes frames.
func (s *sender) verbatim(g *group) error {
	l := s.lender.Get(min(frame.MaxHeader+g.size, readSize))
	defer s.lender.Put(l)
	piece := l.B[:frame.MaxHeader]
	room := len(l.B)
	send := func(b []byte) error {
		for len(b) > 0 {
			n := min(len(b), room-len(piece))
			piece, b = append(piece, b[:n]...), b[n:]
			if len(piece) < room {
				return nil
			}
			if err := s.opaque(piece); err != nil {
				return err
			}
			piece = piece[:frame.MaxHeader]
		}
		return nil
	}
	taken := make([]int, len(g.blocks))
	literals := g.literals
	for _, r := range g.runs {
		run := literals
		if r.block != literal {
			run = g.blocks[r.block].data[taken[r.block]:]
			taken[r.block] += r.n
		} else {
			literals = literals[r.n:]
		}
		if err := send(run[:r.n]); err != nil {
			return err
		}
	}
	return s.opaque(piece)
}
