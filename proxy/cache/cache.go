package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A Cache is the value cache of one proxy with all its peers. It is safe for concurrent use.
type Cache struct {
	config Config
	ctx    context.Context // value streams are opened until it ends

	mu    sync.Mutex
	peers map[string]*Peer
}

// New returns a Cache that opens and takes value streams until ctx ends.
func New(ctx context.Context, cfg Config) *Cache {
	cfg.drift = new(sentinel)
	return &Cache{config: cfg, ctx: ctx, peers: map[string]*Peer{}}
}

// Peer returns the values shared with a peer.
func (c *Cache) Peer(name string) *Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[name]
	if p == nil {
		p = &Peer{config: &c.config, ctx: c.ctx, name: name, notes: map[frame.Tag]int{}, conns: map[frame.Tag]*conn{}}
		c.peers[name] = p
	}
	return p
}

// Accept answers a peer's opening of a value stream and takes the values that it puts there, until the stream ends.
// refuse answers no, accept yes.
func (c *Cache) Accept(peer string, opening []byte, refuse func(code tunnel.Code, text string), accept func() Stream) {
	f := frame.Fields{B: opening[1:]}
	epoch := uint64(f.Int())
	if f.Short || c.config.Room < 0 || c.ctx.Err() != nil {
		refuse(frame.RefusedBadOpening, "no value stream is taken: it has no epoch, there is no room, or the proxy is about to end")
		return
	}
	p := c.Peer(peer)
	if n := p.lingering.Load(); n > 0 { // it may be Room already
		refuse(frame.RefusedBadOpening, fmt.Sprintf("no value stream is taken: apps have yet to read %d bytes of values of lost ones", n))
		return
	}
	p.mu.Lock() // once the peer has the answer, Refs to the new values may come
	stream := accept()
	s := newStore(p.config, p, &p.lingering, &p.Receiving, stream, epoch)
	s.wait(c.ctx, peer)
	old := p.store
	p.store = s
	clear(p.notes) // they were about values that are gone
	if p.writer != nil {
		clear(p.writer.seen)
		p.writer.want = nil
	}
	p.ready()
	p.answer()
	p.mu.Unlock()
	if old != nil {
		old.lose()
		old.stream.Reset(frame.ResetByFrames)
	}
	err := s.run()
	held := s.lose()
	stream.Close()
	switch {
	case errors.Is(err, reference.ErrReference):
		c.config.Metrics.WrongReference()
		c.config.Log.Error("the two ends hold different values: the stream of shared values is reset", "peer", peer, "err", err)
	case errors.Is(err, frame.ErrFrame), errors.Is(err, io.ErrUnexpectedEOF):
		// It is said whether or not values are lost: the peer may open such a stream every second.
		c.config.Log.Error("the stream of shared values is reset: its frames are out of form", "peer", peer, "reason", "protocol", "bytes", held, "err", err)
	case held > 0:
		c.config.Log.Info("values that the peer has put here are lost", "peer", peer, "bytes", held, "err", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == s {
		p.store = nil
		if p.writer != nil { // no frame tells any more which Refs were delivered
			p.writer.stream.Reset(frame.ResetByFrames)
		}
	}
}

// Reset ends all value streams, and with them every wait for a value.
func (c *Cache) Reset() {
	c.mu.Lock()
	var all []*Peer
	for _, p := range c.peers {
		all = append(all, p)
	}
	c.mu.Unlock()
	for _, p := range all {
		p.mu.Lock()
		if p.writer != nil {
			p.writer.stream.Reset(frame.ResetByApp)
		}
		if p.store != nil {
			p.store.stream.Reset(frame.ResetByApp)
		}
		p.mu.Unlock()
	}
}
