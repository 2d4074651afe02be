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
