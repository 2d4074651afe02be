package reference

// AppendTo appends the latest value, if there is one, to dst.
func (c *Copy) AppendTo(dst []byte) []byte {
	v := c.acquire()
	defer c.release()
	if v == nil {
		return dst
	}
	return append(dst, v.bytes...)
}

// Drop forgets all values, as an end that has restarted: its next value is the first again.
func (c *Copy) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = 0
	clear(c.values)
}

// Size returns the bytes in the block.
func (c *Copy) Size() int { return c.size }

// Version returns the number of the latest value, from 1 on; 0: nothing is held, and a block has to travel without
// reference.
func (c *Copy) Version() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.latest
}

// Memory returns the bytes of all values that are held now.
func (c *Copy) Memory() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	total := 0
	for i := range c.values {
		total += len(c.values[i].bytes)
	}
	return total
}
