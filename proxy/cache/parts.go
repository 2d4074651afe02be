package cache

import (
	"bytes"
	"slices"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Parts is the name under which hellos list, among codecs, that a proxy takes Parts frames.
const Parts = "parts"

// maxSpans bounds the parts of values that bytes are made of.
const maxSpans = 32

// PutParts returns parts that together are v's bytes, in their order: bytes of values that the peer holds or soon will,
// of whatever block, and a few literal ones. Bytes that are in no value it puts as new values. No part crosses one of
// cuts, which are offsets in ascending order. The connection must carry the parts in their order. v's last element need
// not be whole, and its codec must lose nothing. If ok is false, the bytes must travel by themselves.
func (p *Peer) PutParts(t frame.Tag, v Put, cuts []int) (parts []frame.Part, ok bool) {
	p.submit.Lock()
	defer p.submit.Unlock()
	spans, ok := p.cover(t, &v)
	if !ok {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w, c := p.writer, p.conn(t)
	if w == nil || w != spans.writer {
		for _, s := range spans.list { // a gap may have been put by the next stream already
			if w != nil && s.entry.epoch == w.epoch {
				w.unref(s.entry)
			}
		}
		return nil, false // the stream is lost, and with it the values
	}
	parts, entries := spans.parts(v.Data, cuts)
	if ok = !c.farEnded && len(c.pending)+len(entries) <= maxPending && len(entries) > 0 && len(parts) <= frame.MaxParts; ok {
		last := &spans.list[len(spans.list)-1]
		c.refers = true
		c.after.move(place{last.entry, last.from + last.n})
		c.pending = append(c.pending, entries...)
		for _, e := range entries {
			e.refs++
		}
	}
	for _, s := range spans.list {
		w.unref(s.entry)
	}
	return parts, ok
}

// A cover is the spans of bytes. Each span has a ref.
type cover struct {
	writer *writer
	list   []span
}

// cover returns spans of v's bytes, after it has put the bytes that no value has. submit is held.
func (p *Peer) cover(t frame.Tag, v *Put) (x cover, ok bool) {
	p.mu.Lock()
	w, c := p.ready(), p.conns[t]
	if w == nil || c != nil && (c.farEnded || len(c.pending) >= maxPending) {
		p.mu.Unlock()
		return x, false
	}
	x.writer = w
	var e *entry
	if slot, known := w.slots.Use(keyOf(&v.Decl)); known && !slot.latest.mayLose && bytes.Equal(slot.latest.raw, v.Data) {
		e = slot.latest
	} else if e = w.index.named(nameOf(v), v.Data); e != nil {
		w.retired.Use(e.id)
	}
	if e != nil {
		e.refs++
		x.list = []span{{0, len(v.Data), e, 0}}
		p.mu.Unlock()
		p.config.Metrics.SharedValue("again")
		return x, true
	}
	p.mu.Unlock()
	marks := marksOf(v.Data)
	p.mu.Lock()
	if p.writer != w {
		p.mu.Unlock()
		return x, false
	}
	var after place
	if c = p.conns[t]; c != nil {
		after = c.after
	}
	known := w.index.cover(v.Data, marks, after)
	if known = worth(known, keyOf(&v.Decl), len(v.Data)); len(known) > maxSpans {
		known = nil
	}
	for _, s := range known {
		s.entry.refs++
		w.retired.Use(s.entry.id)
	}
	p.mu.Unlock()
	if len(known) > 0 {
		p.config.Metrics.SharedValue("again")
	}
	at := 0
	for _, s := range append(known, span{at: len(v.Data)}) {
		x.list = append(x.list, p.gap(t, v, at, s.at, marks)...)
		if s.entry != nil {
			x.list = append(x.list, s)
		}
		at = s.at + s.n
	}
	return x, true
}

// worth returns the spans that are worth naming of the n bytes of a value of block k. If the spans leave more than an
// eighth of the bytes, the spans of earlier values of the same block are not worth it: named, they would keep the rest
// of the value from being coded as a difference to the earlier value.
func worth(spans []span, k blockKey, n int) []span {
	left := n
	for _, s := range spans {
		left -= s.n
	}
	if left <= n/8 {
		return spans
	}
	return slices.DeleteFunc(spans, func(s span) bool { return s.entry.slot.blockKey == k })
}

// gap puts the whole elements between two offsets of v's bytes, and returns their span, which has a ref; none if they
// are too few, or there is no room.
func (p *Peer) gap(t frame.Tag, v *Put, from, to int, marks []mark) []span {
	unit := v.Decl.DType.Size()
	from += (unit - from%unit) % unit
	to -= to % unit
	if to-from < minSpan {
		return nil
	}
	g := *v
	g.Decl.Off, g.Decl.N, g.Data, g.marks = v.Decl.Off+from, (to-from)/unit, v.Data[from:to], marksWithin(v.Data, marks, from, to)
	e, _, ok := p.put(t, &g, false)
	if !ok && v.Own != 0 { // such as that the peer has not seen enough of the block's last values
		if g.Decl.Base == g.Decl.Key {
			g.Decl.Base = v.Own
		}
		g.Decl.Key = v.Own
		e, _, ok = p.put(t, &g, false)
	}
	if !ok {
		return nil
	}
	return []span{{from, to - from, e, 0}}
}

// marksWithin returns the marks of the bytes between two offsets of b. marks are all marks of b.
func marksWithin(b []byte, marks []mark, from, to int) []mark {
	if from == 0 && to == len(b) {
		return marks
	}
	within := marksOf(b[from : from+minSpan])
	for _, m := range marks {
		if m.at-markWindow > from && m.at <= to {
			within = append(within, mark{m.hash, m.at - from})
		}
	}
	return within
}

// parts returns the parts of b, which end at cuts too, and the entries of the ones that are of values.
func (x *cover) parts(b []byte, cuts []int) (parts []frame.Part, entries []*entry) {
	at := 0
	add := func(to int, s *span) {
		for at < to {
			for len(cuts) > 0 && cuts[0] <= at {
				cuts = cuts[1:]
			}
			end := to
			if len(cuts) > 0 {
				end = min(to, cuts[0])
			}
			part := frame.Part{N: end - at}
			if s == nil {
				part.Literal = b[at:end]
			} else {
				part.Value = frame.ValueRef{Epoch: s.entry.epoch, ID: s.entry.id, Size: len(s.entry.raw)}
				part.From, part.Hash = s.from+at-s.at, frame.PartHash(b[at:end])
				entries = append(entries, s.entry)
			}
			parts = append(parts, part)
			at = end
		}
	}
	for i := range x.list {
		s := &x.list[i]
		add(s.at, nil)
		add(s.at+s.n, s)
	}
	add(len(b), nil)
	return parts, entries
}
