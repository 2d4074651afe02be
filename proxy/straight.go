package proxy

import "github.com/gradproxy/gradproxy/proxy/frame"

import mem "github.com/gradproxy/gradproxy/proxy/memory"

import (
	"github.com/gradproxy/gradproxy/tensor"

	"github.com/gradproxy/gradproxy/proxy/app"
)

// Bytes of large tensors are read straight to where their blocks' coders want them: a copy costs as much as some coders do.
// That the next bytes are those of the tensor whose bytes came last is likely, and not known; the parser is asked of them as of
// all others, and where they are something else they are moved.

// straight is what a sender expects of the next bytes. The zero straight expects nothing.
type straight struct {
	cut   *tensorCut // whose bytes come
	side  int        // how many have come side by side
	hold  int        // bytes from cut.off on that the app writes without waiting for an answer
	large bool       // those of the last large tensor came side by side
	ended bool       // it has just ended
}

// straightFrom is how many bytes must have come side by side for more to be expected, and the least of a block that is worth it.
// Frames of HTTP/2, between which other bytes stand, are shorter.
const straightFrom = 64 << 10

const (
	// straightMost is the most bytes of a block that are read at a time.
	straightMost = 1 << 20
	// betweenTensors is how much is read where a large tensor has ended and another is likely to follow: room for what stands
	// between them and for little of the next, which has to be copied to its block.
	betweenTensors = 16 << 10
	// ahead is how many bytes more than a block lacks are worth waiting for, where they are sure to come: what a segment on
	// loopback holds, twice.
	ahead = 128 << 10
)

// follow takes note that n bytes of t come, for which c is the state, or nil.
func (s *straight) follow(c *tensorCut, t tensor.Tensor, n int) {
	if s.cut != c {
		s.cut, s.side = c, 0
	}
	s.side += n
	s.hold = t.Hold - n
	s.ended = s.ended && !s.expects()
}

// other takes note of bytes that are of no tensor.
func (s *straight) other() { *s = straight{large: s.large, ended: s.ended} }

// end takes note that the last of a tensor's size bytes has come.
func (s *straight) end(size int) {
	if size < straightFrom {
		s.other()
		return
	}
	large := s.side >= straightFrom
	*s = straight{large: large, ended: large}
}

// expects reports whether the next bytes are likely to be those of blocks.
func (s *straight) expects() bool {
	return s.cut != nil && (s.large || s.side >= straightFrom) && s.cut.want >= straightFrom && !s.cut.t.Index()
}

// rest returns the memory of what a block lacks, or of the first part, if its bytes are expected; else nil.
func (s *straight) rest() []byte {
	if !s.expects() || s.cut.block == nil {
		return nil
	}
	b := s.cut.block
	return b.data[b.filled:min(len(b.data), b.filled+straightMost)]
}

// next returns the bytes of the block that the next ones are likely to begin. 0: none, or a large one.
func (s *straight) next() int {
	if !s.expects() || s.cut.left > 0 {
		return 0
	}
	if n, _ := s.cut.next(s.hold); n <= straightMost {
		return n
	}
	return 0
}

// least returns for how many bytes to wait where n are wanted: for all, and for some that follow them, if the app writes them
// without waiting for an answer and nothing that is timed waits besides.
func (s *sender) least(n int) int {
	switch hold := s.straight.hold; {
	case hold < n:
		return 1
	case s.group.timed:
		return n
	default:
		return min(hold, n+ahead)
	}
}

// read reads once from the app and takes what came. If nothing did the error is that of reading.
func (s *sender) read() (came bool, err error) {
	if rest := s.straight.rest(); rest != nil {
		n, spare, err := s.app.Read(app.Request{Into: rest, Room: frame.MaxHeader, Size: frame.MaxHeader + len(rest), Min: s.least(len(rest)), Ahead: s.most})
		if err != nil {
			return false, err
		}
		return true, s.takeRest(rest[:n], spare)
	}
	q := app.Request{Room: frame.MaxHeader, Size: readSize, Min: 1}
	if n := s.straight.next(); n > 0 {
		q.Size, q.Min, q.Ahead = frame.MaxHeader+n, s.least(n), s.most
	} else if s.straight.ended {
		q.Size, s.straight.ended = betweenTensors, false
	}
	_, s.reading, err = s.app.Read(q)
	if err != nil {
		return false, err
	}
	err = s.take(s.reading.B)
	s.lender.Put(s.reading)
	s.reading = mem.Buffer{}
	return true, err
}

// takeRest takes bytes that were read to where a block wants its next ones. spare has room for them behind frame.MaxHeader bytes: if
// they are others, that block may be gone once they are dealt with.
func (s *sender) takeRest(b []byte, spare mem.Buffer) error {
	c := s.straight.cut
	seg, err := s.ask(b)
	t := seg.Tensor
	if err != nil || t.Size == 0 || t.Size != c.t.Size || t.Off != c.off || s.cuts[t.Key] != c {
		defer s.lender.Put(spare)
		return s.classified(append(spare.B[:frame.MaxHeader], b...), seg, err)
	}
	var others []byte
	if seg.Len < len(b) {
		defer s.lender.Put(spare)
		others = append(spare.B[:frame.MaxHeader], b[seg.Len:]...)
	} else {
		s.lender.Put(spare) // before the block waits for the tunnel
	}
	s.straight.follow(c, t, seg.Len)
	if err := s.came(c, seg.Len); err != nil {
		return err
	}
	s.advance(c, seg.Len)
	if others == nil {
		return nil
	}
	return s.take(others)
}

// adoptable reports whether a block of n bytes, whose first ones are in buf behind frame.MaxHeader bytes of room, can have as its
// memory what was read into: nothing else is in it, and the block is worth a buffer of that size.
func (s *sender) adoptable(buf []byte, n int) bool {
	read := s.reading.B
	return n >= straightFrom && s.reading.Paid > 0 && &read[0] == &buf[0] && len(read) == len(buf) && len(buf) <= frame.MaxHeader+n && frame.MaxHeader+n <= cap(read)
}
