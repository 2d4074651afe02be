package tunnel

// write sends the session's records for this carrier until it dies or has left.
func (s *session) write(c *carrier) {
	err := s.writeAll(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(c)
	if err != nil {
		s.kill(c, err)
		return
	}
	c.closed = true
	c.cond.Broadcast()
}

func (s *session) writeAll(c *carrier) error {
	for {
		work, end := s.await(c)
		if !work {
			return c.close(end)
		}
		if err := c.putNext(); err != nil {
			return err
		}
		if c.link.Pending() >= flushSize {
			if err := s.flush(c); err != nil {
				return err
			}
		}
	}
}

// await waits until c.out and c.big are there to be written, or reports that the carrier ends, and its last
// record. Whenever it has to wait, the bytes that were written so far are flushed.
func (s *session) await(c *carrier) (work bool, end []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(c)
	for c.served || !s.next(c) && !s.mayPad(c) {
		switch {
		case c.served:
			c.cond.Wait()
		case c.dead || c.end != nil || c.leaving && c.peerLeft && c.flight.n == 0:
			return false, c.end
		case c.link.Pending() > 0:
			s.mu.Unlock()
			err := s.flush(c)
			s.mu.Lock()
			if err != nil {
				s.kill(c, err)
			}
		default:
			c.rest()
			c.cond.Wait()
			c.idle = false
		}
	}
	return true, nil
}

// flush waits for the network. Others may send small chunks meanwhile, and one of them is told if there are any.
func (s *session) flush(c *carrier) error {
	c.flushing.Store(true)
	defer c.flushing.Store(false)
	s.mu.Lock()
	if s.small.n > 0 {
		if helper := s.waiting(true); helper != nil {
			helper.wake()
		}
	}
	s.mu.Unlock()
	return c.link.Flush()
}

// mayPad fills c.out with padding for the burst that is about to end; false: none is missing. The session's lock is
// held.
func (s *session) mayPad(c *carrier) bool {
	if c.dead || c.end != nil || c.closed {
		return false
	}
	c.out, c.big = c.padder.next(c.out[:0]), nil
	s.far.padded.Add(uint64(len(c.out)))
	return len(c.out) > 0
}

// rest notes that the writer waits for work.
func (c *carrier) rest() {
	c.link.Idle()
	c.idle = true
}

// serve does the work of a writer that waits, in the caller's goroutine and as far as the connection takes it at once:
// to wake the writer, on another core, costs more than it takes to write some records, and they leave sooner. The
// writer is woken for the rest. The session's lock is held, and let go meanwhile.
func (s *session) serve(c *carrier) {
	if !c.link.CanTry() {
		c.wake()
		return
	}
	c.idle, c.served = false, true
	written, full, err := 0, false, error(nil)
	for err == nil && !full && written < flushSize {
		pending := c.link.Pending()
		more := pending < flushSize && (s.next(c) || s.mayPad(c))
		if !more && pending == 0 {
			break
		}
		s.mu.Unlock()
		if more {
			err = c.putNext()
		} else {
			full, err = c.link.TryFlush()
			written += pending
		}
		s.mu.Lock()
		s.release(c)
	}
	c.served = false
	if err != nil {
		s.kill(c, err)
	}
	if c.dead || c.end != nil || c.leaving || full || written >= flushSize {
		c.cond.Broadcast()
		return
	}
	c.rest()
}

// release gives back the chunk that was written.
func (s *session) release(c *carrier) {
	if c.big != nil {
		s.mem.unuse(c.big)
		c.big = nil
	}
}

// putNext puts the records that the session had for this carrier.
func (c *carrier) putNext() error {
	if err := c.put(c.out); err != nil {
		return err
	}
	if c.big != nil {
		return c.put(c.big.record())
	}
	return nil
}

// put hands records to the link.
func (c *carrier) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.burst += len(b)
	_, err := c.link.Write(b)
	return err
}

// close writes a last record and says that nothing follows.
func (c *carrier) close(end []byte) error {
	if err := c.put(end); err != nil {
		return err
	}
	return c.link.CloseWrite()
}
