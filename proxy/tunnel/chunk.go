package tunnel

// A chunk holds bytes of one stream, from Write until they are acknowledged, or from a carrier until they
// are read. It belongs to one list of its stream, and is guarded by the session's lock, but for the bytes that
// a user has reserved by users.
type chunk struct {
	next *chunk
	off  uint64 // stream offset of the first byte
	from int    // bytes of it that were read already (receiving)
	n    int    // bytes that it holds
	fin  bool   // the direction ends after them

	state  chunkState
	left   bool    // has left once: header and bytes are final
	flight *flight // of the carrier on which it left last; nil: it is to leave, perhaps again

	users int  // goroutines that use buf outside the lock
	freed bool // to be put back when the last user is gone

	buf  []byte // headerLen bytes of room, then the bytes
	head int    // bytes of the header, which is at the end of that room
}

type chunkState uint8

const (
	chunkQueued  chunkState = iota // waits for a carrier
	chunkFilling                   // Write copies into it
	chunkSent                      // left on a carrier, not acknowledged
)

// A flight counts the chunks that left on one carrier and are not acknowledged.
type flight struct {
	n     int
	ended func() // called when the last one is; nil: nobody waits for it
}

// lands takes one out that was acknowledged, or dropped.
func (f *flight) lands() {
	if f.n--; f.n == 0 && f.ended != nil {
		f.ended()
	}
}

// end returns the position after the chunk, where the end of the direction counts as one position.
func (c *chunk) end() uint64 {
	e := c.off + uint64(c.n)
	if c.fin {
		e++
	}
	return e
}

func (c *chunk) room() int      { return len(c.buf) - headerLen - c.n }
func (c *chunk) bytes() []byte  { return c.buf[headerLen+c.from : headerLen+c.n] }
func (c *chunk) record() []byte { return c.buf[headerLen-c.head : headerLen+c.n] }

// take copies bytes of p behind the chunk's own.
func (c *chunk) take(p []byte) int {
	n := copy(c.buf[headerLen+c.n:], p)
	c.n += n
	return n
}

// seal writes the header, a short one if that is allowed: from now on every replay sends the bytes of record.
func (c *chunk) seal(stream uint64, short bool) {
	h := header{length: c.n, kind: kindData, stream: stream, value: c.off}
	if c.fin {
		h.flags = flagFin
	}
	c.head = headerLen
	if short {
		var room [headerLen]byte // no short header of DATA is longer
		b := h.appendShort(room[:0])
		c.head = len(b)
		copy(c.buf[headerLen-c.head:], b)
	} else {
		h.append(c.buf[:0])
	}
	c.left = true
}
