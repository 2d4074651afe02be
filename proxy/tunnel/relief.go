package tunnel

import "time"

// relieve is called when 95 % of the memory budget are used, and while that is so. It resets the streams whose readers
// have taken nothing for a second, the largest first, until that is no longer so.
func (e *Endpoint) relieve() {
	if e.relieves.Swap(true) {
		return
	}
	go func() {
		defer e.relieves.Store(false)
		for e.mem.over(95) {
			st := e.largestStalled(time.Now().Add(-time.Second))
			if st == nil {
				return
			}
			e.log.Warn("stream reset: memory budget spent and its reader does not read", "peer", st.Peer(), "bytes", st.Buffered())
			st.Reset(CodeMemory)
		}
	}()
}

// largestStalled returns the stream with most to read, or beyond a gap, among the streams whose reader has taken
// nothing since then, of the peers that use more than their share. One that was reset holds nothing, though the peer
// may never say that it knows.
func (e *Endpoint) largestStalled(since time.Time) (largest *Stream) {
	var unread uint64
	for _, p := range e.list() {
		if !p.mem.over(95) {
			continue
		}
		s := p.session()
		s.mu.Lock()
		for _, st := range s.streams {
			if n := st.far - st.pos; n > unread && st.waitsAt.Before(since) && !st.aborted && !st.closed {
				largest, unread = &Stream{stream: st, session: s}, n
			}
		}
		s.mu.Unlock()
	}
	return largest
}
