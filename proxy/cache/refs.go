package cache

import (
	"fmt"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/tensor"
)

// maxPending bounds the Refs of a connection that a peer may leave undelivered: a value that is sent again takes no
// room there, and would be counted without end where the peer tells of no delivery.
const maxPending = 1 << 14

// Put puts the next value of a block into the peer's store, unless the peer holds it already, and returns a reference
// to the value, which the connection must carry. fresh says that the peer did not hold the value. If ok is false the
// block must travel by itself: there is no value stream or no room, or the connection has ended at the peer, or has too
// many Refs that are not delivered.
func (p *Peer) Put(t frame.Tag, v Put) (r frame.ValueRef, fresh, ok bool) {
	p.submit.Lock()
	defer p.submit.Unlock()
	e, fresh, ok := p.put(t, &v, true)
	if !ok {
		return r, false, false
	}
	return frame.ValueRef{Epoch: e.epoch, ID: e.id, Size: len(v.Data)}, fresh, true
}

// put has the peer hold the next value of a block, and returns its entry, which has one ref more: of a Ref that the
// connection is to carry, or the caller's. submit is held.
func (p *Peer) put(t frame.Tag, v *Put, carries bool) (e *entry, fresh, ok bool) {
	p.mu.Lock()
	w, c := p.ready(), p.conns[t]
	if w == nil || c != nil && (c.farEnded || len(c.pending) >= maxPending) {
		p.mu.Unlock()
		return nil, false, false
	}
	e, fresh = w.entry(t, v)
	if e == nil {
		p.mu.Unlock()
		p.config.Metrics.FellBack(v.Choice.Codec.String(), v.Role, tensor.NoMemory)
		return nil, false, false
	}
	e.refs++
	if fresh || e.lost {
		e.serve(t)
	}
	if carries {
		c = p.conn(t)
		c.refers = true
		c.pending = append(c.pending, e)
	}
	p.mu.Unlock()
	if !fresh {
		p.config.Metrics.SharedValue("again")
	} else {
		err := p.flush(w)
		if err != nil {
			w.memory.Give(e.reserved)
		} else {
			err = w.send(e, v, p.counterpart(w, e.slot, v))
		}
		if err != nil {
			return nil, false, false // the stream is lost, and with it the value
		}
		p.mu.Lock()
		e.slot.put = true
		if v.Answered {
			w.keep(e.slot)
		}
		p.mu.Unlock()
	}
	return e, fresh, true
}

// Await returns the value of a Ref that connection t carries, once the peer has put the value. When gone is closed the
// wait ends with an error. The caller must not change data, and must call release once data is delivered, which also
// tells the peer.
func (p *Peer) Await(t frame.Tag, r frame.ValueRef, gone <-chan struct{}) (data []byte, release func(), err error) {
	p.mu.Lock()
	s := p.store
	p.mu.Unlock()
	switch {
	case s == nil:
		return nil, nil, ErrLost
	case s.epoch != r.Epoch:
		return nil, nil, fmt.Errorf("%w: the ref is of stream %d, and %d lives", ErrLost, r.Epoch, s.epoch)
	}
	v, err := s.await(r, gone)
	if err != nil {
		return nil, nil, err
	}
	return v.data, func() {
		s.release(v)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.note(s, t, 1)
	}, nil
}
