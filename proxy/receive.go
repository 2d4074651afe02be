package proxy

import (
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"net"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// A receiver is one direction of a connection, from the tunnel to the app. It has no policy and guesses nothing: frames
// say what was done. What it delivers it shows to the parser of that direction, so that the one that
// classifies what the own app sends knows what came before it.
type receiver struct {
	*connection
	lender    mem.Allocator
	frames    frame.Reader
	slots     recvSlots
	pipe      *pipe.Pipe
	item      lease     // memory of what is being read
	kept      mem.Share // memory of slots, until the end
	paidSlots int
	learner   parser.Parser // nil once it gave up
}

func newReceiver(c *connection, src frame.ChunkReader) *receiver {
	r := &receiver{connection: c, slots: recvSlots{newCodec: c.shared.Codecs}}
	r.lender = mem.NewAllocator(&c.shared.buffers, c.shared.received, &c.shared.cache.Peer(c.peer).Receiving)
	r.kept.Peer = r.lender.Share.Peer
	r.frames = frame.Reader{Source: src, Limit: r.slots.limit, Reserve: r.keeps, Pool: &c.shared.buffers}
	r.pipe = pipe.New(c.shared.pool, pipeDepth, func(err error) {
		if errors.Is(err, errAppGone) {
			c.stream.Reset(frame.ResetByApp)
			return
		}
		c.stream.Reset(frame.ResetByFrames) // run may be waiting for frames that will not come
	})
	return r
}

// errAppReset says that the far app reset the connection.
var errAppReset = errors.New("proxy: the far app reset the connection")

// run delivers what the peer sends until its CloseWrite (nil), a Reset (errAppReset), or until something breaks.
func (r *receiver) run() error {
	for {
		f, err := r.frames.Next()
		if err != nil {
			return r.end(fmt.Errorf("proxy: tunnel: %w", noEOF(err)))
		}
		switch f.Kind {
		case frame.Bytes:
			err = r.bytes(f.Body)
		case frame.Declare:
			err = r.declare(f)
		case frame.Block:
			err = r.block(f)
		case frame.Gather:
			err = r.gather(f.Body)
		case frame.Ref:
			err = r.ref(f.Body)
		case frame.CloseWrite:
			return r.end(nil)
		case frame.Reset:
			return r.end(errAppReset)
		default:
			err = fmt.Errorf("%w: %v is not expected", frame.ErrFrame, f.Kind)
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
	r.lender.Give(r.item.paid)
	r.item = lease{}
	e := r.pipe.Wait()
	r.lender.Budget.Give(&r.kept, r.paidSlots*recvSlotCost)
	if e != nil {
		return e
	}
	return err
}

// bytes delivers opaque bytes. If something before them is still being decoded they are copied, or wait for it.
func (r *receiver) bytes(b []byte) error {
	deliver := func() error { return r.deliver(b) }
	done, err := r.pipe.Try(deliver)
	if done || err != nil {
		return err
	}
	kept, ok := r.lender.Copy(b)
	if !ok {
		r.pipe.Wait()
		_, err := r.pipe.Try(deliver)
		return err
	}
	return r.pipe.Do(pipe.Item{
		Emit: func() error { return r.deliver(kept.B) },
		Done: func() { r.lender.Put(kept) },
	})
}

// A recvBlock is one block at the receiver, from its frame until its delivery.
type recvBlock struct {
	slot       *recvSlot
	prev, done chan struct{} // the slot's turn
	encoded    []byte        // pooled, the frame's body: form and encoding
	data       []byte        // pooled: the elements
	err        error
	ref        frame.ValueRef // a shared value; the fields above are not set
}

// take makes a recvBlock of a Block frame, whose body it takes over. The block must have size bytes.
func (r *receiver) take(f frame.Frame, size int) (*recvBlock, error) {
	slot, err := r.slots.get(f.Slot)
	switch {
	case err != nil:
	case len(f.Body) == 0:
		err = fmt.Errorf("%w: block without a form", frame.ErrFrame)
	case slot.size() != size:
		err = fmt.Errorf("%w: block of %d bytes where gather wants %d", frame.ErrFrame, slot.size(), size)
	}
	if err != nil {
		r.shared.buffers.Put(f.Body)
		return nil, err
	}
	b := &recvBlock{slot: slot, prev: slot.turn, done: make(chan struct{}), encoded: f.Body, data: r.shared.buffers.Get(size)}
	slot.turn = b.done
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
	took := time.Since(begin)
	b.slot.sawDecoding(took)
	r.shared.Metrics.Decoded(b.slot.codec, took)
	r.shared.buffers.Put(b.encoded)
	b.encoded = nil
}

func (s *recvSlot) decode(dst, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder of %s: panic: %v", frame.ErrFrame, s.codec, p)
		}
	}()
	switch form, src := body[0], body[1:]; {
	case form == frame.FormCoded:
		if err := s.dec.Decode(dst, src); err != nil {
			return fmt.Errorf("%w: block of %s: %w", frame.ErrFrame, s.codec, err)
		}
	case form != frame.FormRaw:
		return fmt.Errorf("%w: block of form %d", frame.ErrFrame, form)
	case copy(dst, src) != len(dst) || len(src) != len(dst):
		return fmt.Errorf("%w: raw block of %d bytes in a slot of %d", frame.ErrFrame, len(src), len(dst))
	}
	return nil
}

// block decodes and delivers a block that stands by itself.
func (r *receiver) block(f frame.Frame) error {
	slot, err := r.slots.get(f.Slot)
	if err != nil {
		return err
	}
	b, err := r.take(f, slot.size())
	if err != nil {
		return err
	}
	item := r.leased()
	emit := func() error {
		if b.err != nil {
			return b.err
		}
		return r.deliver(b.data)
	}
	release := func() {
		r.shared.buffers.Put(b.data)
		r.lender.Give(item.paid)
	}
	if r.pipe.Idle() && slot.took < pipe.HandOver(len(b.data)) {
		done, err := r.pipe.Try(func() error {
			r.decode(b)
			return emit()
		})
		if done {
			release()
			return err
		}
	}
	return r.pipe.Do(pipe.Item{Work: func() { r.decode(b) }, Emit: emit, Done: release})
}

// gather reads the Blocks that a Gather frame speaks of, and delivers all its runs at once.
func (r *receiver) gather(body []byte) error {
	sizes, err := frame.ParseGather(body)
	if err == nil {
		err = r.keepGathered(sizes)
	}
	var blocks []*recvBlock
	if err == nil {
		blocks, err = r.gathered(sizes)
	}
	back := func() {
		for _, b := range blocks {
			r.shared.buffers.Put(b.encoded)
			r.shared.buffers.Put(b.data)
		}
		r.shared.buffers.Put(body)
	}
	if err != nil {
		back()
		return noEOF(err)
	}
	item := r.leased()
	return r.pipe.Do(pipe.Item{
		Work: func() {
			for _, b := range blocks {
				if b.ref.Size == 0 {
					r.decode(b)
				}
			}
		},
		Emit: func() error { return r.deliverGathered(body, blocks) },
		Done: func() {
			back()
			r.lender.Give(item.paid)
		},
	})
}

// ref delivers a shared value.
func (r *receiver) ref(body []byte) error {
	named, err := frame.ParseRef(body)
	if err != nil {
		return err
	}
	return r.pipe.Do(pipe.Item{Emit: func() error {
		data, release, err := r.shared.cache.Peer(r.peer).Await(r.tag, named, r.gone)
		if err != nil {
			return err
		}
		defer release()
		return r.deliver(data)
	}})
}

// gathered reads the Blocks that a Gather frame speaks of, which have the given sizes.
func (r *receiver) gathered(sizes []int) (blocks []*recvBlock, err error) {
	for len(blocks) < len(sizes) {
		f, err := r.frames.Next()
		if err != nil {
			return blocks, err
		}
		switch f.Kind {
		case frame.Declare:
			err = r.declare(f)
		case frame.Block:
			var b *recvBlock
			if b, err = r.take(f, sizes[len(blocks)]); err == nil {
				blocks = append(blocks, b)
			}
		case frame.Ref:
			var named frame.ValueRef
			if named, err = frame.ParseRef(f.Body); err == nil && named.Size != sizes[len(blocks)] {
				err = fmt.Errorf("%w: ref to %d bytes where gather wants %d", frame.ErrFrame, named.Size, sizes[len(blocks)])
			}
			blocks = append(blocks, &recvBlock{ref: named})
		case frame.Gather:
			r.shared.buffers.Put(f.Body)
			fallthrough
		default:
			err = fmt.Errorf("%w: %v among the blocks of a gather", frame.ErrFrame, f.Kind)
		}
		if err != nil {
			return blocks, err
		}
	}
	return blocks, nil
}

// deliverGathered delivers what a Gather's body speaks of, once all of it is there.
func (r *receiver) deliverGathered(body []byte, blocks []*recvBlock) error {
	elements := make([][]byte, len(blocks))
	for i, b := range blocks {
		if b.err != nil {
			return b.err
		}
		if elements[i] = b.data; b.ref.Size != 0 {
			data, release, err := r.shared.cache.Peer(r.peer).Await(r.tag, b.ref, r.gone)
			if err != nil {
				return err
			}
			defer release()
			elements[i] = data
		}
	}
	return frame.DeliverRuns(body, elements, r.deliver)
}

// deliver shows the parts to the learner and writes them to the app.
func (r *receiver) deliver(parts ...[]byte) error {
	for _, b := range parts {
		r.learn(b)
	}
	n, err := r.write(parts)
	if err != nil {
		r.appGone.Store(true)
	}
	r.shared.Metrics.Delivered(r.peer, int(n))
	if err != nil {
		return fmt.Errorf("%w: %w", errAppGone, err)
	}
	return nil
}

func (r *receiver) write(parts net.Buffers) (int64, error) {
	if len(parts) == 1 {
		n, err := r.conn.Write(parts[0])
		return int64(n), err
	}
	return r.conn.Writev(parts)
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
