// Package receive carries a connection's bytes from the tunnel to the app. It has no policy and guesses nothing: frames
// say how the sender has coded the bytes.
//
//	tunnel ─▶ read ─▶ decode ─▶ deliver ─▶ app
//
// read takes frames, and reserves memory for them. decode turns blocks into elements, on any core. deliver writes the
// bytes to the app in stream order. Before that it shows them to the parser of this direction, so that the parser of
// the own app's bytes knows which bytes the app has received.
package receive

import (
	"errors"
	"fmt"
	"io"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Receiver is one direction of a connection, from the tunnel to the app.
type Receiver struct {
	conn    *path.Conn
	frames  frame.Reader
	memory  reservation
	decode  decoder
	deliver deliverer
	pipe    *pipe.Pipe
	seen    uint64      // deliver.writes at the last call of Stuck
	taken   uint64      // bytes by then, where the system tells
	began   bool        // a frame has come
	mask    tensor.Mask // of the Blocks, Refs and Parts that follow
}

// New returns the Receiver of a connection, which reads c.Stream. The Receiver shows the bytes that it delivers to
// learner, which may be nil.
func New(c *path.Conn, learner parser.Parser) *Receiver {
	env := c.Env
	r := &Receiver{conn: c, deliver: deliverer{conn: c, app: c.App, learner: learner}}
	r.pipe = pipe.New(env.Pool, path.Depth, func(err error) {
		if errors.Is(err, path.ErrAppGone) {
			c.Stream.Reset(frame.ResetByApp)
			return
		}
		c.Stream.Reset(frame.ResetByFrames) // Run may be waiting for frames that will not come
	})
	r.memory = reservation{alloc: memory.NewAllocator(env.Buffers, env.Receiving, c.ReceiveShare), pipe: r.pipe, within: env.MemoryWait, gone: c.Gone}
	r.memory.slots.Peer = c.ReceiveShare
	r.decode = decoder{env: env}
	r.decode.codecs.New = env.Codecs
	r.frames = frame.Reader{Source: c.Stream, Limit: r.decode.limit, Reserve: r.reserve, Pool: env.Buffers, Counts: env.Frames}
	return r
}

// Run delivers the bytes that the peer sends. It returns nil after a CloseWrite frame, path.ErrAppReset after a Reset
// frame, path.ErrRest after a Rest frame, and another error if something breaks.
func (r *Receiver) Run() error {
	for {
		f, err := r.frames.Next()
		if err != nil {
			return r.end(fmt.Errorf("proxy: tunnel: %w", noEOF(err)))
		}
		switch f.Kind {
		case frame.CloseWrite:
			return r.received(nil)
		case frame.Reset:
			return r.end(path.ErrAppReset)
		case frame.Rest:
			return r.received(path.ErrRest)
		}
		if err := r.scheduled(f); err != nil {
			return r.end(err)
		}
	}
}

// scheduled takes a frame once the connection's peer has its turn at the processors.
func (r *Receiver) scheduled(f frame.Frame) error {
	if r.conn.Schedule != nil {
		defer r.conn.Schedule()()
	}
	if !r.began {
		if r.began = true; r.conn.SharesValues() {
			r.conn.Values.Ready() // by the time that the first value comes, values can be put
		}
	}
	switch f.Kind {
	case frame.Bytes:
		return r.bytes(f.Body)
	case frame.Declare:
		return r.declare(f)
	case frame.Block:
		return r.block(f)
	case frame.Gather:
		return r.gather(f.Body)
	case frame.Ref:
		return r.ref(f.Body)
	case frame.Parts:
		return r.parts(f.Body)
	case frame.Mask:
		return r.masked(f.Body)
	}
	return fmt.Errorf("%w: %v is not expected", frame.ErrFrame, f.Kind)
}

// received is the end of a direction that the peer has ended in order, or brought to rest.
func (r *Receiver) received(err error) error {
	if e := r.end(err); e != err {
		return e
	}
	r.conn.Received(err != nil)
	return err
}

// Stuck reports whether a write to the app is under way and the app has taken no byte since the last call of Stuck.
func (r *Receiver) Stuck() bool {
	last, taken := r.seen, r.taken
	r.seen, r.taken = r.deliver.writes.Load(), r.conn.Taken()
	return r.seen == last && last%2 == 1 && r.taken == taken
}

// Learner returns the parser that is shown the bytes, or nil if there is none or it gave up.
func (r *Receiver) Learner() parser.Parser { return r.deliver.learner }

// Wait waits until nothing is under way.
func (r *Receiver) Wait() error { return r.pipe.Wait() }

// end waits until all bytes that were received before the end are delivered.
func (r *Receiver) end(err error) error {
	if err != nil && !errors.Is(err, path.ErrAppReset) && !errors.Is(err, path.ErrRest) {
		r.conn.GiveUp()
	}
	r.memory.give(r.memory.take())
	e := r.pipe.Wait()
	r.memory.giveSlots()
	if e != nil {
		return e
	}
	return err
}

// reserve takes memory for a frame's body that is to be read, for the elements that it decodes to, and for its encoding
// if that may be shortened.
func (r *Receiver) reserve(k frame.Kind, id uint32, n int) error {
	need := memory.Footprint(n)
	if k != frame.Block {
		return r.memory.reserve(need)
	}
	slot, err := r.decode.slot(id)
	if err != nil {
		return err
	}
	return r.memory.reserveLonger(need+memory.Footprint(slot.bytes)+blockCost, slot.lengthened)
}

// bytes delivers opaque bytes. If something before them is still being decoded they are copied, or wait for it.
func (r *Receiver) bytes(b []byte) error {
	deliver := func() error { return r.deliver.run(b) }
	done, err := r.pipe.Try(deliver)
	if done || err != nil {
		return err
	}
	kept, ok := r.memory.alloc.Copy(b)
	if !ok {
		r.pipe.Wait()
		_, err := r.pipe.Try(deliver)
		return err
	}
	return r.pipe.Do(pipe.Item{
		Emit: func() error { return r.deliver.run(kept.B) },
		Done: func() { r.memory.alloc.Put(kept) },
	})
}

// pace waits until bytes of the peer may become as many as they decode to.
func (r *Receiver) pace(encoded, decoded int) {
	if r.conn.Pace != nil {
		r.conn.Pace(encoded, decoded, r.conn.Gone)
	}
}

// declare sets a slot from a Declare frame.
func (r *Receiver) declare(f frame.Frame) error {
	if r.decode.slots[f.Slot] == nil {
		if err := r.memory.reserveSlot(len(r.decode.slots)); err != nil {
			return err
		}
	}
	return r.decode.declare(f.Slot, f.Body)
}

// block decodes and delivers a block that stands by itself.
func (r *Receiver) block(f frame.Frame) error {
	slot, err := r.decode.slot(f.Slot)
	if err != nil {
		return err
	}
	r.pace(len(f.Body), slot.bytes)
	b, err := r.decode.block(f, slot.bytes)
	if err != nil {
		return err
	}
	b.mask = r.mask
	reserved := r.memory.take()
	if r.pipe.Idle() && slot.took < pipe.HandOver(len(b.data)) {
		done, err := r.pipe.Try(func() error {
			r.decode.decode(&b)
			return r.deliver.alone(&b)
		})
		if done {
			r.release(&b, reserved)
			return err
		}
	}
	return r.handOver(b, reserved)
}

// handOver has a block that stands by itself decoded by any core, and delivered in its turn.
func (r *Receiver) handOver(b block, reserved reserved) error {
	return r.pipe.Do(pipe.Item{
		Work: func() { r.decode.decode(&b) },
		Emit: func() error { return r.deliver.alone(&b) },
		Done: func() { r.release(&b, reserved) },
	})
}

// release gives back the memory of a block that stands by itself.
func (r *Receiver) release(b *block, reserved reserved) {
	r.conn.Env.Buffers.Put(b.data)
	r.memory.give(reserved)
}

// gather reads the Blocks that a Gather frame names, and delivers all its runs at once.
func (r *Receiver) gather(body []byte) error {
	sizes, err := frame.ParseGather(body)
	if err == nil {
		err = r.memory.reserveGathered(sizes)
	}
	var blocks []*block
	if err == nil {
		blocks, err = r.gathered(sizes)
	}
	back := func() {
		buffers := r.conn.Env.Buffers
		for _, b := range blocks {
			buffers.Put(b.encoded)
			buffers.Put(b.data)
		}
		buffers.Put(body)
	}
	if err != nil {
		back()
		return noEOF(err)
	}
	r.memory.giveUnused()
	reserved := r.memory.take()
	return r.pipe.Do(pipe.Item{
		Work: func() {
			for _, b := range blocks {
				if b.slot != nil {
					r.decode.decode(b)
				}
			}
		},
		Emit: func() error { return r.deliver.gathered(body, blocks) },
		Done: func() {
			back()
			r.memory.give(reserved)
		},
	})
}

// gathered reads the Blocks that a Gather frame names, which must have the given sizes.
func (r *Receiver) gathered(sizes []int) (blocks []*block, err error) {
	for len(blocks) < len(sizes) {
		f, err := r.frames.Next()
		if err != nil {
			return blocks, err
		}
		switch f.Kind {
		case frame.Declare:
			err = r.declare(f)
		case frame.Mask:
			err = r.masked(f.Body)
		case frame.Block:
			r.pace(len(f.Body), sizes[len(blocks)])
			var b block
			if b, err = r.decode.block(f, sizes[len(blocks)]); err == nil {
				b.mask = r.mask
				blocks = append(blocks, &b)
			}
		case frame.Ref:
			var named frame.ValueRef
			if named, err = frame.ParseRef(f.Body); err == nil && named.Size != sizes[len(blocks)] {
				err = fmt.Errorf("%w: ref to %d bytes where the Gather frame has %d", frame.ErrFrame, named.Size, sizes[len(blocks)])
			}
			r.pace(len(f.Body), named.Size)
			blocks = append(blocks, &block{ref: named, mask: r.mask})
		case frame.Parts:
			var b *block
			if b, err = r.partsOf(f.Body, sizes[len(blocks)]); err == nil {
				blocks = append(blocks, b)
			}
		case frame.Gather:
			r.conn.Env.Buffers.Put(f.Body)
			fallthrough
		default:
			err = fmt.Errorf("%w: %v among the blocks of a Gather frame", frame.ErrFrame, f.Kind)
		}
		if err != nil {
			return blocks, err
		}
	}
	return blocks, nil
}

// ref delivers a shared value.
func (r *Receiver) ref(body []byte) error {
	named, err := frame.ParseRef(body)
	if err != nil {
		return err
	}
	r.pace(len(body), named.Size)
	mask := r.mask
	return r.pipe.Do(pipe.Item{Emit: func() error { return r.deliver.value(named, mask) }})
}

// parts delivers parts of shared values, and bytes between them.
func (r *Receiver) parts(body []byte) error {
	size, err := frame.EachPart(body, nil)
	if err != nil {
		r.conn.Env.Buffers.Put(body)
		return err
	}
	r.pace(len(body), size)
	reserved, mask := r.memory.take(), r.mask
	return r.pipe.Do(pipe.Item{
		Emit: func() error {
			at := 0
			return r.deliver.each(body, func(b []byte) error {
				at += len(b)
				return r.deliver.masked(b, mask.From(at-len(b)))
			})
		},
		Done: func() {
			r.conn.Env.Buffers.Put(body)
			r.memory.give(reserved)
		},
	})
}

// partsOf makes a block of a Parts frame's body, which it takes over. The block must have size bytes.
func (r *Receiver) partsOf(body []byte, size int) (*block, error) {
	n, err := frame.EachPart(body, nil)
	if err == nil && n != size {
		err = fmt.Errorf("%w: parts of %d bytes where the Gather frame has %d", frame.ErrFrame, n, size)
	}
	if err != nil {
		r.conn.Env.Buffers.Put(body)
		return nil, err
	}
	r.pace(len(body), size)
	return &block{parts: true, encoded: body, data: r.conn.Env.Buffers.Get(size), mask: r.mask}, nil
}

// masked sets the mask of the bytes that follow.
func (r *Receiver) masked(body []byte) (err error) {
	r.mask, err = frame.ParseMask(body)
	return err
}

// noEOF makes the end of a stream an error where more must come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
