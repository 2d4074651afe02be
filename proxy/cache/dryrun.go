package cache

import (
	"errors"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A DryRun counts the bytes of values that a Peer would put, without a peer: one that has as much room, and has every
// value delivered before the next one is put. It is not safe for concurrent use.
type DryRun struct {
	writer *writer
	stream *countedStream
	share  memory.Share
}

// NewDryRun returns a DryRun. cfg.Open is not used.
func NewDryRun(cfg Config) *DryRun {
	cfg.drift = new(sentinel)
	d := &DryRun{stream: &countedStream{}}
	d.writer = newWriter(&cfg, "", &d.share, d.stream, 1)
	d.writer.settle(cfg.Room)
	return d
}

// Put is Peer.Put.
func (d *DryRun) Put(t frame.Tag, v Put) (r frame.ValueRef, fresh, ok bool) {
	w := d.writer
	e, fresh := w.entry(t, &v)
	if e == nil {
		return r, false, false
	}
	if fresh {
		err := w.send(e, &v, nil)
		if err = errors.Join(err, w.pipe.Wait()); err != nil {
			return r, false, false
		}
	}
	if fresh || e.lost {
		e.serve(t)
	}
	w.forget, w.evict, w.kept, w.want = w.forget[:0], w.evict[:0], w.kept[:0], w.want[:0] // no peer has to hear of it
	return frame.ValueRef{Epoch: w.epoch, ID: e.id, Size: len(v.Data)}, fresh, true
}

// PutParts is Peer.PutParts for whole values.
func (d *DryRun) PutParts(t frame.Tag, v Put, cuts []int) (parts []frame.Part, ok bool) {
	r, _, ok := d.Put(t, v)
	x := cover{writer: d.writer, list: []span{{0, len(v.Data), &entry{id: r.ID, raw: v.Data}, 0}}}
	if ok {
		parts, _ = x.parts(v.Data, cuts)
	}
	return parts, ok
}

// Bytes returns how many bytes were put since the last call.
func (d *DryRun) Bytes() int64 {
	n := d.stream.bytes
	d.stream.bytes = 0
	return n
}
