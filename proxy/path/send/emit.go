package send

import (
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/tensor"
)

// An emitter writes frames to the tunnel, in stream order, and gives back the memory of blocks that have left.
//
// Frames of small encodings leave several at a time. It would cost as much as some codecs to wake the tunnel's writer
// for each frame, and the far proxy for each record. Frames wait only while there is more to read from the app. So if
// the app, or a network before it, is slower than this proxy, its blocks leave one by one as they come.
type emitter struct {
	*direction
	pipe      *pipe.Pipe
	tellsIdle bool        // flush is called before the sender waits for the app
	waiting   int         // groups whose frames wait in the tunnel for more
	mask      tensor.Mask // that the peer was told last; only frames that are being written change it
	spare     spare
}

// maxWaiting is the maximum of groups that leave together. With blocks of 1 MiB they are the work of two milliseconds.
// Groups with long frames leave earlier.
const maxWaiting = 4

// opaque sends bytes verbatim. buf begins with frame.MaxHeader bytes of room, which are overwritten.
func (e *emitter) opaque(buf []byte) error {
	n := len(buf) - frame.MaxHeader
	if n == 0 {
		return nil
	}
	whole := frame.Front(buf, frame.Bytes, 0)
	e.conn.Env.Metrics.Sent(e.conn.Peer, e.conn.Job, verbatim, tensor.Unknown, n, len(whole))
	write := func() error { return e.write(whole) }
	sent, err := e.pipe.Try(write)
	if sent || err != nil {
		return err
	}
	kept, ok := e.alloc.Copy(whole)
	if !ok {
		e.pipe.Wait()
		_, err := e.pipe.Try(write)
		return err
	}
	return e.pipe.Do(pipe.Item{
		Emit: func() error { return e.write(kept.B) },
		Done: func() { e.alloc.Put(kept) },
	})
}

// group writes the frames of a group whose blocks are encoded. more says that the caller is the sender's own goroutine,
// which will read again at once.
func (e *emitter) group(g *group, more bool) error {
	var few [4][]byte // of one block
	frames := few[:0]
	overhead := 0
	if len(g.runs) > 1 {
		frames = append(frames, frame.Append(nil, frame.Frame{Kind: frame.Gather, Body: g.gather()}))
		overhead = len(frames[0])
	}
	for _, b := range g.blocks {
		from := len(frames)
		if b.declare != nil {
			frames = append(frames, b.declare)
		}
		frames = append(e.masked(frames, b.mask), b.frame)
		b.wire = total(frames[from:])
	}
	var err error
	if more {
		err = e.writeMore(frames...)
	} else {
		err = e.write(frames...)
	}
	metrics := e.conn.Env.Metrics
	for _, b := range g.blocks {
		b.record.Sent(len(b.data), b.wire)
		metrics.Sent(e.conn.Peer, e.conn.Job, b.text, b.role, len(b.data), b.wire)
	}
	if overhead > 0 {
		metrics.Sent(e.conn.Peer, e.conn.Job, verbatim, tensor.Unknown, len(g.literals), overhead)
	}
	return err
}

// verbatim sends a group's bytes in stream order, as Bytes frames, or as Parts frames where parts has the parts of a
// block.
func (e *emitter) verbatim(g *group, parts [][]frame.Part) error {
	l := e.alloc.Get(min(frame.MaxHeader+g.size, readSize))
	defer e.alloc.Put(l)
	piece := l.B[:frame.MaxHeader]
	room := len(l.B)
	send := func(b []byte) error {
		for len(b) > 0 {
			n := min(len(b), room-len(piece))
			piece, b = append(piece, b[:n]...), b[n:]
			if len(piece) < room {
				return nil
			}
			if err := e.opaque(piece); err != nil {
				return err
			}
			piece = piece[:frame.MaxHeader]
		}
		return nil
	}
	taken := make([]int, len(g.blocks)) // bytes of each block that have been sent
	literals := g.literals
	for _, r := range g.runs {
		run := literals
		if r.block != literal {
			run = g.blocks[r.block].data[taken[r.block]:]
			taken[r.block] += r.n
			if parts != nil && parts[r.block] != nil {
				if err := e.opaque(piece); err != nil {
					return err
				}
				piece = piece[:frame.MaxHeader]
				b := g.blocks[r.block]
				if err := e.parts(b, takeParts(&parts[r.block], r.n), r.n, b.mask.From(taken[r.block]-r.n)); err != nil {
					return err
				}
				continue
			}
		} else {
			literals = literals[r.n:]
		}
		if err := send(run[:r.n]); err != nil {
			return err
		}
	}
	return e.opaque(piece)
}

// takeParts takes the parts of the next n bytes.
func takeParts(parts *[]frame.Part, n int) []frame.Part {
	k := 0
	for ; n > 0; k++ {
		n -= (*parts)[k].N
	}
	taken := (*parts)[:k]
	*parts = (*parts)[k:]
	return taken
}

// parts sends n bytes of a block as parts of values, to be masked.
func (e *emitter) parts(b *block, parts []frame.Part, n int, mask tensor.Mask) error {
	whole := frameOfParts(parts)
	write := func() error {
		frames := append(e.masked(nil, mask), whole)
		wire := total(frames)
		b.record.Sent(n, wire)
		e.conn.Env.Metrics.Sent(e.conn.Peer, e.conn.Job, b.text, b.role, n, wire)
		return e.write(frames...)
	}
	if sent, err := e.pipe.Try(write); sent || err != nil {
		return err
	}
	return e.pipe.Do(pipe.Item{Emit: write})
}

// masked appends the frame that has the peer mask the elements of the next frame by m, unless it does already. All
// frames must then be written.
func (e *emitter) masked(frames [][]byte, m tensor.Mask) [][]byte {
	if m == e.mask {
		return frames
	}
	e.mask = m
	return append(frames, frame.Append(nil, frame.Frame{Kind: frame.Mask, Body: m[:]}))
}

// total returns how many bytes frames have.
func total(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// frameOfParts returns the frame of parts: a Ref where it is one whole value.
func frameOfParts(parts []frame.Part) []byte {
	if p := &parts[0]; len(parts) == 1 && p.Value.ID != 0 && p.N == p.Value.Size {
		return frame.Append(nil, frame.Frame{Kind: frame.Ref, Body: p.Value.Append(nil)})
	}
	return frame.Append(nil, frame.Frame{Kind: frame.Parts, Body: frame.AppendParts(nil, parts)})
}

// write gives whole frames, at least one, to the tunnel.
func (e *emitter) write(frames ...[]byte) error {
	last := len(frames) - 1
	for _, f := range frames[:last] {
		if _, err := e.conn.Stream.WriteMore(f); err != nil {
			return err
		}
	}
	_, err := e.conn.Stream.Write(frames[last])
	return err
}

// writeMore writes a group's frames as write does, for the sender's own goroutine, which will read again at once.
func (e *emitter) writeMore(frames ...[]byte) error {
	if !e.tellsIdle {
		return e.write(frames...)
	}
	for _, f := range frames {
		if _, err := e.conn.Stream.WriteMore(f); err != nil {
			return err
		}
	}
	if e.waiting++; e.waiting >= maxWaiting {
		e.flush()
	}
	return nil
}

// flush lets the frames that wait leave. It does not wait itself. Only the sender's own goroutine may call it.
func (e *emitter) flush() {
	if e.waiting > 0 {
		e.waiting = 0
		e.conn.Stream.Flush()
	}
}

// reserve takes n bytes from the budget. If there are none it waits until everything that is under way has left and has
// given back its memory, and tries again.
func (e *emitter) reserve(n int) bool {
	if e.alloc.Take(n) {
		return true
	}
	e.pipe.Wait()
	return e.alloc.Take(n)
}

// release gives back the memory of a group's blocks.
func (e *emitter) release(g *group) {
	buffers := e.conn.Env.Buffers
	for _, b := range g.blocks {
		if b.data == nil {
			continue
		}
		for _, x := range b.aside {
			buffers.Put(x)
		}
		buffers.Put(b.pooled)
		buffers.Put(b.buf)
		e.alloc.Give(b.cost)
		b.data, b.pooled, b.buf, b.frame, b.aside = nil, nil, nil, nil, [2][]byte{}
	}
	e.alloc.Give(g.reserved)
	g.literals, g.reserved = nil, 0
}
