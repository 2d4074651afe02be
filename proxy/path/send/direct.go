package send

import "github.com/gradproxy/gradproxy/tensor"

// A direct is a sender's expectation of the next bytes. Direct reads put the bytes of large tensors where their blocks'
// encoders want them: a copy costs as much as some encoders do. That the next bytes belong to the tensor whose bytes
// came last is likely, and not known; the parser is asked about them as about all others, and where they are something
// else they are moved. The zero direct expects nothing.
type direct struct {
	cut   *tensorCut // whose bytes come
	side  int        // bytes of it that have come side by side
	hold  int        // bytes from cut.off on that the app writes without waiting for an answer
	large bool       // the bytes of the last large tensor came side by side
	ended bool       // it has just ended
}

const (
	// directFrom is how many bytes must have come side by side for more to be expected, and the minimum of a block that
	// is worth a direct read. Frames of HTTP/2, between which other bytes stand, are shorter.
	directFrom = 64 << 10
	// directMax is the maximum that a direct read takes at a time.
	directMax = 1 << 20
)

// follow takes note that n bytes of t come, for which c is the state, or nil.
func (s *direct) follow(c *tensorCut, t tensor.Tensor, n int) {
	if s.cut != c {
		s.cut, s.side = c, 0
	}
	s.side += n
	s.hold = t.Hold - n
	s.ended = s.ended && !s.expects()
}

// other takes note of bytes that are of no tensor.
func (s *direct) other() { *s = direct{large: s.large, ended: s.ended} }

// end takes note that the last of a tensor's size bytes has come.
func (s *direct) end(size int) {
	if size < directFrom {
		s.other()
		return
	}
	large := s.side >= directFrom
	*s = direct{large: large, ended: large}
}

// expects reports whether the next bytes are likely to belong to blocks.
func (s *direct) expects() bool {
	return s.cut != nil && (s.large || s.side >= directFrom) && s.cut.want >= directFrom && !s.cut.t.Index()
}

// isNext reports whether a segment that a direct read has put into a block is of that block.
func (s *direct) isNext(t tensor.Tensor) bool {
	return t.Size != 0 && s.cut.continues(t)
}

// rest returns the memory for the bytes that a block lacks, or for the first part of them, if they are expected; else
// nil.
func (s *direct) rest() []byte {
	if !s.expects() || s.cut.block == nil {
		return nil
	}
	b := s.cut.block
	return b.data[b.filled:min(len(b.data), b.filled+directMax)]
}

// block returns the bytes of the block that the next ones are likely to begin. 0: none, or a large one.
func (s *direct) block() int {
	if !s.expects() || s.cut.left > 0 {
		return 0
	}
	if n, _ := s.cut.next(s.hold); n <= directMax {
		return n
	}
	return 0
}
