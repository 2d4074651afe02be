package app

import (
	"io"

	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A plainReader reads with no help of the kernel: it takes memory before bytes have come.
type plainReader struct {
	conn   io.Reader
	memory *memory.Allocator
}

// Read is Reader.Read.
func (r *plainReader) Read(q Request) (int, memory.Buffer, error) {
	buf := r.memory.Get(q.Size)
	dst := buf.B[q.Room:]
	if q.Into != nil {
		dst = q.Into[:min(len(q.Into), len(dst))]
	}
	n, err := r.conn.Read(dst)
	if n > 0 {
		buf.B = buf.B[:q.Room+n]
		return n, buf, nil
	}
	r.memory.Put(buf)
	return 0, memory.Buffer{}, err
}
