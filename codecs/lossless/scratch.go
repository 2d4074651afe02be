package lossless

import "github.com/klauspost/compress/huff0"

// A scratch is the memory of one Append or Decode while it runs. Its buffers grow to the needs of a chunk, and stay.
type scratch struct {
	level Level

	differences buffer // of ascending integers
	packed      buffer // elements that are not zero
	zeros       buffer // the map of zero elements
	exchanged   buffer // float64 after its exchange
	words       buffer // 32-bit halves of 64-bit elements
	halves      buffer // 16-bit halves of 32-bit elements
	coded       buffer // the planes that are coded

	sample  sample
	encoder huff0.Scratch // keeps its tables, so it is set never to reuse one
	decoder huff0.Scratch
}

// A buffer is memory that is used again.
type buffer struct{ b []byte }

// room returns n bytes of any content, valid until the next call.
func (b *buffer) room(n int) []byte {
	if cap(b.b) < n {
		b.b = make([]byte, n)
	}
	return b.b[:n]
}
