package wansim

// A ring is a queue of bytes that grows as needed and keeps its memory.
type ring struct {
	buf   []byte
	start int
	n     int
}

// write appends p.
func (r *ring) write(p []byte) {
	if len(p) == 0 {
		return
	}
	if r.n+len(p) > len(r.buf) {
		grown := make([]byte, max(r.n+len(p), 2*len(r.buf), 4096))
		n := r.n
		r.peek(grown[:n])
		*r = ring{buf: grown, n: n}
	}
	end := (r.start + r.n) % len(r.buf)
	copied := copy(r.buf[end:], p)
	copy(r.buf, p[copied:])
	r.n += len(p)
}

// read moves the first len(p) bytes, which must be there, to p.
func (r *ring) read(p []byte) {
	if len(p) == 0 {
		return
	}
	r.peek(p)
	r.start = (r.start + len(p)) % len(r.buf)
	r.n -= len(p)
}

func (r *ring) peek(p []byte) {
	copied := copy(p, r.buf[r.start:])
	copy(p[copied:], r.buf)
}
