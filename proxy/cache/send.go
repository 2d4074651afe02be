package cache

import (
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// send puts an entry on the stream, as a difference to from, if that is not nil. The control frames that are due must
// have been submitted before, so that the room which was made for the entry is free at the peer. submit is held.
func (w *writer) send(e *entry, v *Put, from *copyOfSlot) error {
	slot, c := e.slot, w.config
	chosen := w.codec(e, v, from)
	how := slot.form(from)
	slot.peerHas = true
	c.Metrics.SharedValue(how)
	var declare []byte
	if text := chosen.String(); text != slot.text {
		chosen, declare = w.declare(slot, chosen, v.Decl, v.Role)
	}
	enc, text := slot.enc, slot.text
	if from != nil {
		var err error
		if enc, err = slot.against(chosen, from); err != nil {
			enc, from = slot.enc, nil
		}
	}
	turn, job, role, record, raw := slot.coder.Next(), v.Decl.Job, v.Role, v.Observe, v.Raw
	var short codecs.Codec // in whose short form the value may travel
	if v.Short && from == nil && codecs.Lossy(chosen) {
		short = chosen
	}
	var buf, block []byte
	return w.pipe.Do(pipe.Item{
		Work: func() {
			turn.Begin()
			defer turn.End()
			begin := time.Now()
			if raw {
				buf, block = w.raw(e)
			} else {
				buf, block = w.encode(e, enc, from, short)
			}
			took := time.Since(begin)
			c.Metrics.Encoded(text, role, took)
			w.measure(e, text, role, record)
			if how != "whole" && !raw { // a first value does not predict the gain of the next
				record.Saw(text, len(e.raw), len(block), took)
			}
		},
		Emit: func() error {
			_, err := w.stream.Write(declare)
			if err == nil {
				_, err = w.stream.Write(block)
			}
			wire := len(declare) + len(block)
			record.Sent(0, wire)
			c.Metrics.Sent(w.name, job, text, role, 0, wire)
			return err
		},
		Done: func() {
			c.Pool.Put(buf)
			w.memory.Give(e.reserved)
		},
	})
}

// form names the form of a slot's next value, for the metrics.
func (s *writerSlot) form(from *copyOfSlot) string {
	switch {
	case from != nil:
		return "reverse"
	case s.peerHas:
		return "difference"
	}
	return "whole"
}

// codec returns the codec of an entry: the chosen one, or the lossless one where an exact value is due or a lossy codec
// has no value to take a difference to yet.
func (w *writer) codec(e *entry, v *Put, from *copyOfSlot) codecs.Codec {
	slot, c := e.slot, v.Choice.Codec
	if e.lost = codecs.Lossy(c); e.lost {
		slot.lossy++
		if w.config.drift.exact(slot.job, &slot.gauge) {
			return w.exact(e)
		}
		if due := v.Choice.Flush > 0 && slot.lossy >= v.Choice.Flush; due || !slot.peerHas && from == nil {
			c, e.lost = w.config.Lossless, false
		}
	}
	if !e.lost {
		slot.lossy = 0
	}
	return c
}

// exact has an entry that was to lose something travel exactly, since its job drifts.
func (w *writer) exact(e *entry) codecs.Codec {
	e.lost = false
	e.slot.lossy = 0
	return w.config.Lossless
}

// declare gives a slot another codec, or the lossless one if that codec takes no such block, and returns the codec and
// the Declare frame.
func (w *writer) declare(slot *writerSlot, c codecs.Codec, d frame.Declaration, role tensor.Role) (codecs.Codec, []byte) {
	enc, err := reference.NewEncoder(c, slot.dtype, slot.copy, slot.copy)
	if err != nil {
		c = w.config.Lossless
		if enc, err = reference.NewEncoder(c, slot.dtype, slot.copy, slot.copy); err != nil {
			panic(fmt.Sprintf("proxy: the lossless codec takes no block of %d %v: %v", slot.n, slot.dtype, err))
		}
	}
	d.Codec, d.Role = c.String(), role
	slot.enc, slot.text, slot.reverse.enc = enc, d.Codec, nil
	body := d.Append(nil)
	return c, append(frame.AppendHeader(nil, frame.Declare, slot.id, len(body)), body...)
}

// raw makes the Block frame of an entry that travels as it is, within buf. It is called in the slot's turn.
func (w *writer) raw(e *entry) (buf, block []byte) {
	buf = w.config.Pool.Get(e.room)[:frame.MaxHeader]
	e.slot.copy.Set(e.raw)
	return buf, frame.Front(append(append(buf, frame.FormRaw), e.raw...), frame.Block, e.slot.id)
}

// encode makes an entry's Block frame, within buf. Whatever goes wrong with the codec, the value travels: raw. It is
// called in the slot's turn.
func (w *writer) encode(e *entry, enc codecs.Encoder, from *copyOfSlot, short codecs.Codec) (buf, block []byte) {
	slot, c := e.slot, w.config
	buf = c.Pool.Get(e.room)[:frame.MaxHeader]
	begun := append(buf, frame.FormCoded)
	if from != nil {
		begun = from.appendReverse(buf)
	}
	body, err := slot.coder.Encode(begun, len(buf), enc, e.raw)
	if err != nil {
		slot.copy.Set(e.raw)
		if !errors.Is(err, codecs.ErrUnsuited) {
			c.Log.Error("codec failed; its value travels raw", "codec", slot.text, "err", err)
		}
	} else if short != nil {
		body = w.shorten(short, body)
	}
	return buf, frame.Front(body, frame.Block, slot.id)
}

// shorten leaves the codes of zeros out of a Block's body behind frame.MaxHeader bytes, if there are many.
func (w *writer) shorten(c codecs.Codec, body []byte) []byte {
	head, err := reference.HeadLen(body[frame.MaxHeader+1:])
	if err != nil {
		panic(fmt.Sprintf("proxy: an encoding without a head: %v", err))
	}
	return coder.ShortenBlock(c, body, frame.MaxHeader, head, w.config.Pool)
}

const (
	measureEvery = 8        // of so many successive values of a slot one is measured
	measureMax   = 64 << 10 // elements of it, from the first, that are measured at most
)

// measure observes, in the slot's turn, how much of an entry's value the peer lacks.
func (w *writer) measure(e *entry, codec string, role tensor.Role, record *tensors.Record) {
	slot := e.slot
	if !e.lost || !slot.dtype.Float() {
		return
	}
	if n := min(len(e.raw), driftSample*slot.dtype.Size()); slot.gauge.judges(slot.copy.RelativeError(slot.dtype, e.raw[:n])) && w.config.drift.drifted(slot.job, &slot.gauge) {
		w.config.Metrics.Drifts(slot.job)
		w.config.Log.Warn("weights that are pulled drift from the server's: all values of the job travel exactly for a while; choose a finer codec for role state", "job", slot.job, "codec", codec, "peer", w.name)
	}
	if slot.measured++; slot.measured%measureEvery == 1 {
		relative := slot.copy.RelativeError(slot.dtype, e.raw[:min(len(e.raw), measureMax*slot.dtype.Size())])
		w.config.Metrics.Erred(codec, role, relative)
		record.Erred(relative)
	}
}
