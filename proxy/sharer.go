package proxy

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
)

// A sharer is one peer's values: those that this proxy has put there, and the holder of those that the peer has put here.
type sharer struct {
	shared *Proxy
	peer   string

	sends, received mem.Share    // of its connections in the two budgets
	lingers         atomic.Int64 // bytes of values of lost streams that are being delivered

	submit sync.Mutex // who puts something on the stream, in the order of its numbers

	mu     sync.Mutex
	held   *holder // nil: the peer has opened no value stream
	out    *valueStream
	epoch  uint64 // of the last value stream
	opened time.Time
	asked  bool                      // a value stream is being opened
	refers map[frame.Tag]*connection // that carry Refs which the peer may not have delivered yet
	told   map[frame.Tag]int         // what is to be told of the peer's values: Refs delivered, or ended
}

// valueStreamEvery is how long a lost value stream is not opened again.
const valueStreamEvery = time.Second

// sharerOf returns the values shared with a peer.
func (p *Proxy) sharerOf(peer string) *sharer {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sharers[peer]
	if s == nil {
		s = &sharer{shared: p, peer: peer, told: map[frame.Tag]int{}, refers: map[frame.Tag]*connection{}}
		p.sharers[peer] = s
	}
	return s
}

// ready returns the value stream, or nil and has it opened. s.mu is held.
func (s *sharer) ready() *valueStream {
	if s.out == nil && !s.asked && time.Since(s.opened) > valueStreamEvery && s.shared.opening.Err() == nil {
		s.opened, s.asked = time.Now(), true
		s.epoch++
		go s.open(s.epoch)
	}
	if s.out == nil || s.out.room == 0 {
		return nil
	}
	return s.out
}

// open opens the value stream, and returns when it has ended.
func (s *sharer) open(epoch uint64) {
	stream, err := s.shared.Open(s.shared.opening, s.peer, binary.AppendUvarint([]byte{frame.OpeningValues}, epoch))
	if err != nil {
		s.mu.Lock()
		s.asked = false
		s.mu.Unlock()
		s.shared.Log.Warn("no values are shared with the peer for now", "peer", s.peer, "err", err)
		return
	}
	v := &valueStream{sharer: s, lender: mem.NewAllocator(&s.shared.buffers, s.shared.budget, &s.sends), stream: stream, epoch: epoch, slots: map[valueKey]*list.Element{}, numbers: map[uint32]*putSlot{}, predicts: map[predicted]int{}, lent: map[*connection][]*putValue{},
		seen: map[uint32]uint64{}, kick: make(chan struct{}, 1), dead: make(chan struct{})}
	v.pipe = pipe.New(s.shared.pool, pipeDepth, func(error) { stream.Reset(frame.ResetByFrames) })
	room := frame.Append(nil, frame.Frame{Kind: frame.Room, Body: binary.AppendUvarint(nil, uint64(s.shared.Values))})
	if _, err := stream.Write(room); err != nil {
		stream.Reset(frame.ResetByFrames)
		s.mu.Lock()
		s.asked = false
		s.mu.Unlock()
		return
	}
	s.mu.Lock()
	s.out, s.asked = v, false
	v.settle()
	s.mu.Unlock()
	v.kicked()
	go v.tell()
	for err == nil { // the peer writes nothing here: what comes is the end
		_, err = stream.ReadChunk()
	}
	stream.Reset(frame.ResetByFrames)
	s.mu.Lock()
	if s.out == v {
		s.out = nil
		clear(s.refers)
	}
	s.mu.Unlock()
	close(v.dead)
	v.pipe.Wait()
	s.shared.Log.Info("shared values are lost; the next are put whole", "peer", s.peer, "err", err)
}

// settle takes over what the peer has said of its room. s.mu is held.
func (v *valueStream) settle() {
	if h := v.sharer.held; h != nil && h.granted > 0 {
		v.room = min(h.granted, v.sharer.shared.Values)
	}
}

// await returns a value that the peer has put, or is about to. gone ends the wait.
func (s *sharer) await(named frame.ValueRef, gone <-chan struct{}) (*holder, *heldValue, error) {
	s.mu.Lock()
	h := s.held
	s.mu.Unlock()
	switch {
	case h == nil:
		return nil, nil, errValues
	case h.epoch != named.Epoch:
		return nil, nil, fmt.Errorf("%w: the ref is of stream %d, and %d lives", errValues, named.Epoch, h.epoch)
	}
	v, err := h.await(named, gone)
	return h, v, err
}

// acceptValues answers a peer's opening of a value stream and takes what it puts there until it ends.
func (p *Proxy) acceptValues(peer string, opened []byte, in Incoming, accept func() Stream) {
	f := frame.Fields{B: opened[1:]}
	epoch := uint64(f.Int())
	if f.Short || p.Values < 0 || p.opening.Err() != nil {
		in.Refuse(frame.RefusedBadOpening, "no value stream is taken: it has no epoch, there is no room, or the proxy is about to end")
		return
	}
	s := p.sharerOf(peer)
	if n := s.lingers.Load(); n > 0 { // it may be Values already
		in.Refuse(frame.RefusedBadOpening, fmt.Sprintf("no value stream is taken: apps have yet to read %d bytes of values of lost ones", n))
		return
	}
	s.mu.Lock() // once the peer has the answer, Refs to the new values may come
	stream := accept()
	h := newHolder(s, stream, epoch)
	old := s.held
	s.held = h
	clear(s.told) // they were of values that are gone
	if s.out != nil {
		clear(s.out.seen)
		s.out.want = nil
	}
	s.ready()
	s.mu.Unlock()
	if old != nil {
		old.lose()
		old.stream.Reset(frame.ResetByFrames)
	}
	err := h.run()
	h.lose()
	stream.Close()
	p.Log.Info("values that the peer has put here are lost", "peer", peer, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == h {
		s.held = nil
		if s.out != nil { // nobody tells any more what was delivered
			s.out.stream.Reset(frame.ResetByFrames)
		}
	}
}

// A peerTag names a connection among those of all peers.
type peerTag struct {
	peer string
	tag  frame.Tag
}

// liveAs returns the connection that a peer's tag names, or nil.
func (p *Proxy) liveAs(peer string, t frame.Tag) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tagged[peerTag{peer, t}]
}

// closeValues ends all value streams.
func (p *Proxy) closeValues() {
	p.mu.Lock()
	var all []*sharer
	for _, s := range p.sharers {
		all = append(all, s)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		if s.out != nil {
			s.out.stream.Reset(frame.ResetByApp)
		}
		if s.held != nil {
			s.held.stream.Reset(frame.ResetByApp)
		}
		s.mu.Unlock()
	}
}
