package cache

import (
	"encoding/binary"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// control writes the control frames of a value stream until it is lost.
func (p *Peer) control(w *writer) {
	for {
		select {
		case <-w.kick:
		case <-w.dead:
			return
		}
		p.submit.Lock()
		p.flush(w)
		p.submit.Unlock()
	}
}

// flush submits the control frames that are due on a value stream. submit is held.
func (p *Peer) flush(w *writer) error {
	p.mu.Lock()
	var out packer
	out.numbers(frame.Forget, w.forget)
	out.numbers(frame.Kept, w.kept) // before the same slot is evicted
	out.numbers(frame.Evict, w.evict)
	for tag, n := range p.notes {
		out.add(frame.Delivered, binary.AppendUvarint(tag.Append(out.scratch[:0]), uint64(max(n, 0))))
	}
	if p.store != nil {
		out.prefix = binary.AppendUvarint(nil, p.store.epoch)
		out.numbers(frame.Want, w.want)
		for id, n := range w.seen {
			out.add(frame.Seen, binary.AppendUvarint(binary.AppendUvarint(out.scratch[:0], uint64(id)), n))
		}
	}
	write := w.stream.Write
	if s, ok := w.stream.(patientStream); ok && len(w.kept)+len(w.evict)+len(w.want) == 0 { // values that are to come depend on these
		write = s.WriteSoon
	}
	clear(p.notes)
	clear(w.seen)
	w.forget, w.kept, w.evict, w.want = w.forget[:0], w.kept[:0], w.evict[:0], w.want[:0]
	p.mu.Unlock()
	frames := out.frames()
	if len(frames) == 0 {
		return nil
	}
	return w.pipe.Do(pipe.Item{Emit: func() error {
		_, err := write(frames)
		return err
	}})
}

// A patientStream is a Stream, such as the tunnel's, that knows of bytes that nobody waits for.
type patientStream interface {
	WriteSoon(p []byte) (int, error)
}

// A packer packs items into control frames.
type packer struct {
	prefix    []byte // of each body
	out, body []byte
	kind      frame.Kind // of body
	scratch   [3 * binary.MaxVarintLen64]byte
}

func (p *packer) numbers(k frame.Kind, numbers []uint64) {
	for _, n := range numbers {
		p.add(k, binary.AppendUvarint(p.scratch[:0], n))
	}
}

// add adds an item to the last frame if it is of that kind and has room, else to a new one.
func (p *packer) add(k frame.Kind, item []byte) {
	if k != p.kind || len(p.body)+len(item) > frame.MaxSmall {
		p.frames()
		p.kind, p.body = k, append(p.body, p.prefix...)
	}
	p.body = append(p.body, item...)
}

// frames returns all frames.
func (p *packer) frames() []byte {
	if len(p.body) > 0 {
		p.out = frame.Append(p.out, frame.Frame{Kind: p.kind, Body: p.body})
	}
	p.kind, p.body = 0, p.body[:0]
	return p.out
}
