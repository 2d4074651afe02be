package cache

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// openEvery is how long a lost value stream is not opened again.
const openEvery = time.Second

// Ready reports whether values can be put at the peer. If there is no value stream one is opened, for the next time.
func (p *Peer) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready() != nil
}

// ready returns the writer, or nil and has a value stream opened. p.mu is held.
func (p *Peer) ready() *writer {
	if p.writer == nil && !p.opening && time.Since(p.opened) > openEvery && p.ctx.Err() == nil {
		p.opened, p.opening = time.Now(), true
		p.epoch++
		go p.open(p.epoch)
	}
	if p.writer == nil || p.writer.room == 0 {
		return nil
	}
	return p.writer
}

// answerWithin is the longest time after which a peer's value stream that has no answer yet is answered.
const answerWithin = time.Minute

// answer sees to it that a value stream is opened for a peer that has one here, though nobody has a value to put: the
// peer can put nothing before this side's stream tells it the room. It tries each second at first, later less often.
// p.mu is held.
func (p *Peer) answer() {
	if p.store == nil || p.writer != nil || p.opening || p.answering || p.ctx.Err() != nil {
		return
	}
	p.answering = true
	p.pause = min(max(openEvery, 2*p.pause), answerWithin)
	time.AfterFunc(p.pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answering = false
		if p.store != nil {
			p.ready()
			p.answer()
		}
	})
}

// open opens the value stream, and returns when it has ended.
func (p *Peer) open(epoch uint64) {
	c := p.config
	stream, err := c.Open(p.ctx, p.name, binary.AppendUvarint([]byte{frame.OpeningValues}, epoch))
	if err != nil {
		p.notOpened()
		c.Log.Warn("no values are shared with the peer for now", "peer", p.name, "err", err)
		return
	}
	w := newWriter(c, p.name, &p.Sending, stream, epoch)
	room := frame.Append(nil, frame.Frame{Kind: frame.Room, Body: binary.AppendUvarint(nil, uint64(c.Room))})
	if _, err := stream.Write(room); err != nil {
		stream.Reset(frame.ResetByFrames)
		p.notOpened()
		return
	}
	p.mu.Lock()
	p.writer, p.opening, p.pause = w, false, 0
	if p.store != nil {
		w.settle(p.store.granted)
	}
	p.mu.Unlock()
	w.wake()
	go p.control(w)
	for err == nil { // the peer writes nothing here: an error comes, the end
		_, err = stream.ReadChunk()
	}
	stream.Reset(frame.ResetByFrames)
	p.mu.Lock()
	held := w.used
	if p.writer == w {
		p.writer = nil
		for t, c := range p.conns {
			c.refers, c.pending = false, nil
			c.after.move(place{}) // another stream's values have the same numbers
			p.drop(t, c)
		}
		p.answer()
	}
	p.mu.Unlock()
	close(w.dead)
	w.pipe.Wait()
	var reset *tunnel.ResetError
	switch {
	case p.ctx.Err() != nil: // this proxy ends and puts nothing any more
	case errors.As(err, &reset) && reset.Remote && reset.Code == frame.ResetByFrames: // the next stream may end like this one
		c.Log.Warn("the peer has reset the stream of shared values; its log may say why", "peer", p.name, "bytes", held, "err", err)
	case held > 0:
		c.Log.Info("shared values are lost; the next are put whole", "peer", p.name, "bytes", held, "err", err)
	}
}

// notOpened notes that an opening has failed.
func (p *Peer) notOpened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening = false
	p.answer()
}
