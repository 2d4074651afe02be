package reference

import "sync"

// buffers recycles the bytes of blocks that are being coded, as codecs/internal/scratch does with values: coders are
// many, but few run at a time.
var buffers sync.Pool // of *[]byte of any capacity

// takeBuffer returns n bytes that are anything. The caller owns them until it gives them to putBuffer.
func takeBuffer(n int) *[]byte {
	if b, ok := buffers.Get().(*[]byte); ok && cap(*b) >= n {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n)
	return &b
}

func putBuffer(b *[]byte) { buffers.Put(b) }

var samples = sync.Pool{New: func() any { return new(sample) }}
