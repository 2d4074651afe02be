package proxy

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// A receiver is one direction of a connection, from the tunnel to the app. It has no policy and guesses nothing: frames
// say what was done. What it delivers it shows to the parser of that direction, so that the one that
// classifies what the own app sends knows what came before it.
type receiver struct {
	*connection
	frames  frameReader
	slots   recvSlots
	pipe    *pipe.Pipe
	learner parser.Parser // nil once it gave up
}

func newReceiver(c *connection, src chunkReader) *receiver {
	r := &receiver{connection: c, slots: recvSlots{newCodec: c.shared.Codecs}}
	r.frames = frameReader{src: src, limit: r.slots.limit}
	r.pipe = pipe.New(c.shared.pool, pipeDepth, func(err error) {
		if errors.Is(err, errAppGone) {
			c.stream.Reset(resetByApp)
			return
		}
		c.stream.Reset(resetByFrames) // run may be waiting for frames that will not come
	})
	return r
}

// errAppReset says that the far app reset the connection.
var errAppReset = errors.New("proxy: the far app reset the connection")

// run delivers what the peer sends until its CloseWrite (nil), a Reset (errAppReset), or until something breaks.
func (r *receiver) run() error {
	for {
		f, err := r.frames.ReadFrame()
		if err != nil {
			return r.end(fmt.Errorf("proxy: tunnel: %w", noEOF(err)))
		}
		switch f.Kind {
		case Bytes:
			err = r.bytes(f.Body)
		case Declare:
			err = r.slots.declare(f.Slot, f.Body)
		case Block:
			err = r.block(f)
		case Gather:
			err = r.gather(f.Body)
		case Ref:
			err = r.ref(f.Body)
		case CloseWrite:
			return r.end(nil)
		case Reset:
			return r.end(errAppReset)
		default:
			err = fmt.Errorf("%w: %v is not expected", errFrame, f.Kind)
		}
		if err != nil {
			return r.end(err)
		}
	}
}

// end waits for what was received before the end to be delivered.
func (r *receiver) end(err error) error {
	if err != nil && !errors.Is(err, errAppReset) {
		r.giveUp()
	}
	if e := r.pipe.Wait(); e != nil {
		return e
	}
	return err
}

// bytes delivers opaque bytes. If something before them is still being decoded they are copied.
func (r *receiver) bytes(b []byte) error {
	done, err := r.pipe.Try(func() error { return r.deliver(b) })
	if done || err != nil {
		return err
	}
	kept := append(r.shared.buffers.get(len(b))[:0], b...)
	return r.pipe.Do(pipe.Item{
		Emit: func() error { return r.deliver(kept) },
		Done: func() { r.shared.buffers.put(kept) },
	})
}

// A recvBlock is one block at the receiver, from its frame until its delivery.
type recvBlock struct {
	slot       *recvSlot
	prev, done chan struct{} // the slot's turn
	encoded    []byte        // pooled: form and encoding
	data       []byte        // pooled: the elements
	err        error
	ref        ref // a shared value; the fields above are not set
}

// take makes a recvBlock of a Block frame, whose body it copies. The block must have size bytes.
func (r *receiver) take(f Frame, size int) (*recvBlock, error) {
	slot, err := r.slots.get(f.Slot)
	switch {
	case err != nil:
		return nil, err
	case len(f.Body) == 0:
		return nil, fmt.Errorf("%w: block without a form", errFrame)
	case slot.size() != size:
		return nil, fmt.Errorf("%w: block of %d bytes where gather wants %d", errFrame, slot.size(), size)
	}
	b := &recvBlock{slot: slot, prev: slot.turn, done: make(chan struct{})}
	slot.turn = b.done
	b.encoded = append(r.shared.buffers.get(len(f.Body))[:0], f.Body...)
	b.data = r.shared.buffers.get(size)
	return b, nil
}

// decode sets the block's elements.
func (r *receiver) decode(b *recvBlock) {
	if b.prev != nil {
		<-b.prev
	}
	defer close(b.done)
	begin := time.Now()
	b.err = b.slot.decode(b.data, b.encoded)
	r.shared.Metrics.decoded(b.slot.codec, time.Since(begin))
	r.shared.buffers.put(b.encoded)
	b.encoded = nil
}

func (s *recvSlot) decode(dst, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder of %s: panic: %v", errFrame, s.codec, p)
		}
	}()
	switch form, src := body[0], body[1:]; {
	case form == formCoded:
		if err := s.dec.Decode(dst, src); err != nil {
			return fmt.Errorf("%w: block of %s: %w", errFrame, s.codec, err)
		}
	case form != formRaw:
		return fmt.Errorf("%w: block of form %d", errFrame, form)
	case copy(dst, src) != len(dst) || len(src) != len(dst):
		return fmt.Errorf("%w: raw block of %d bytes in a slot of %d", errFrame, len(src), len(dst))
	}
	return nil
}

// block decodes and delivers a block that stands by itself.
func (r *receiver) block(f Frame) error {
	slot, err := r.slots.get(f.Slot)
	if err != nil {
		return err
	}
	give, err := r.hold(slot.size() + len(f.Body))
	if err != nil {
		return err
	}
	b, err := r.take(f, slot.size())
	if err != nil {
		give()
		return err
	}
	return r.pipe.Do(pipe.Item{
		Work: func() { r.decode(b) },
		Emit: func() error {
			if b.err != nil {
				return b.err
			}
			return r.deliver(b.data)
		},
		Done: func() {
			r.shared.buffers.put(b.data)
			give()
		},
	})
}

// hold takes n bytes of the budget. Where it has none left everything before is delivered first, so that a connection
// then holds one block at a time and none waits for another's memory.
func (r *receiver) hold(n int) (give func(), err error) {
	if r.shared.received.take(n) {
		return func() { r.shared.received.give(n) }, nil
	}
	return func() {}, r.pipe.Wait()
}

// gather reads the Blocks that a Gather frame speaks of, and delivers all its runs at once.
func (r *receiver) gather(body []byte) error {
	g, sizes, err := parseGather(body)
	if err != nil {
		return err
	}
	give, err := r.hold(2 * g.size)
	if err != nil {
		return err
	}
	blocks, err := r.gathered(sizes)
	if err != nil {
		for _, b := range blocks {
			r.shared.buffers.put(b.data)
		}
		give()
		return noEOF(err)
	}
	return r.pipe.Do(pipe.Item{
		Work: func() {
			for _, b := range blocks {
				if b.ref.id == 0 {
					r.decode(b)
				}
			}
		},
		Emit: func() error {
			out, err := r.assemble(&g, blocks)
			if err != nil {
				return err
			}
			defer r.shared.buffers.put(out)
			return r.deliver(out)
		},
		Done: func() {
			for _, b := range blocks {
				r.shared.buffers.put(b.data)
			}
			give()
		},
	})
}

// ref delivers a shared value.
func (r *receiver) ref(body []byte) error {
	named, err := parseRef(body)
	if err != nil {
		return err
	}
	return r.pipe.Do(pipe.Item{Emit: func() error {
		v, err := r.await(named)
		if err != nil {
			return err
		}
		return r.deliver(v)
	}})
}

// await returns a shared value once it is there, and tells the peer that it has been taken.
func (r *receiver) await(named ref) ([]byte, error) {
	s := r.shared.sharerOf(r.peer)
	v, err := s.await(named, r.gone)
	if err == nil {
		s.took(r.connection)
	}
	return v, err
}

// gathered reads the Blocks that a Gather frame speaks of, which have the given sizes.
func (r *receiver) gathered(sizes []int) (blocks []*recvBlock, err error) {
	for len(blocks) < len(sizes) {
		f, err := r.frames.ReadFrame()
		if err != nil {
			return blocks, err
		}
		switch f.Kind {
		case Declare:
			err = r.slots.declare(f.Slot, f.Body)
		case Block:
			var b *recvBlock
			if b, err = r.take(f, sizes[len(blocks)]); err == nil {
				blocks = append(blocks, b)
			}
		case Ref:
			var named ref
			if named, err = parseRef(f.Body); err == nil && named.size != sizes[len(blocks)] {
				err = fmt.Errorf("%w: ref to %d bytes where gather wants %d", errFrame, named.size, sizes[len(blocks)])
			}
			blocks = append(blocks, &recvBlock{ref: named})
		default:
			err = fmt.Errorf("%w: %v among the blocks of a gather", errFrame, f.Kind)
		}
		if err != nil {
			return blocks, err
		}
	}
	return blocks, nil
}

// assemble lays a gather's runs side by side, in a pooled buffer, and gives back the blocks' memory.
func (r *receiver) assemble(g *group, blocks []*recvBlock) ([]byte, error) {
	out := r.shared.buffers.get(g.size)[:0]
	rest := make([][]byte, len(blocks))
	for i, b := range blocks {
		if b.err != nil {
			return nil, b.err
		}
		if rest[i] = b.data; b.ref.id != 0 {
			v, err := r.await(b.ref)
			if err != nil {
				return nil, err
			}
			rest[i] = v
		}
	}
	literals := g.literals
	for _, run := range g.runs {
		from := &literals
		if run.block != literal {
			from = &rest[run.block]
		}
		out, *from = append(out, (*from)[:run.n]...), (*from)[run.n:]
	}
	return out, nil
}

// deliver shows b to the learner and writes it to the app.
func (r *receiver) deliver(b []byte) error {
	r.learn(b)
	n, err := r.conn.Write(b)
	if err != nil {
		r.appGone.Store(true)
	}
	r.shared.Metrics.deliver(r.peer, n)
	if err != nil {
		return fmt.Errorf("%w: %w", errAppGone, err)
	}
	return nil
}

// errAppGone says that the own app's connection no longer takes bytes.
var errAppGone = errors.New("proxy: the app's connection is gone")

func (r *receiver) learn(b []byte) {
	for r.learner != nil && len(b) > 0 {
		seg, err := r.learner.Next(b)
		if err != nil {
			r.learner = nil
			return
		}
		b = b[seg.Len:]
	}
}

// noEOF makes the end of a stream an error where more must come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
