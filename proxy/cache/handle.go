package cache

import (
	"fmt"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// handle takes a control frame about the values that this side has put, which has come on the stream of s.
func (p *Peer) handle(s *store, f frame.Frame) error {
	r := frame.Fields{B: f.Body}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch f.Kind {
	case frame.Room:
		s.granted = int64(r.Int())
		if p.writer != nil && p.store != nil {
			p.writer.settle(p.store.granted)
		}
	case frame.Delivered:
		for len(r.B) > 0 && !r.Short {
			t := r.Tag()
			p.delivered(t, r.Int())
		}
	case frame.Want:
		p.wanted(&r)
	case frame.Seen:
		if err := p.saw(&r); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: %v on a value stream", frame.ErrFrame, f.Kind)
	}
	if r.Short {
		return fmt.Errorf("%w: %v is cut short", frame.ErrFrame, f.Kind)
	}
	return nil
}
