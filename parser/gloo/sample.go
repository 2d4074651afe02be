package gloo

import "encoding/binary"

// How much of a message is looked at, in bytes. Until the type of a tensor is known it is more, and where zeros leave
// nothing to judge (gradients of embeddings) the rest of the message is searched as well.
const (
	sampleLen  = 32 << 10
	confirmLen = 4 << 10
	windowLen  = 512 // bytes of a sample that lie side by side
)

// A sample takes evidence from a message as it passes, the same however it is cut. Memory is fixed.
type sample struct {
	evidence
	size    int // of the message
	off     int // of the next byte
	stride  int // from the begin of one window to that of the next
	search  bool
	hungry  bool // looks between windows too, for words that are not zero
	quota   int  // words still to take
	partial [8]byte
}

// begin starts a message of size bytes. search: look at sampleLen bytes, and everywhere if most of the sample is zero.
func (s *sample) begin(size int, search bool) {
	budget := confirmLen
	if search {
		budget = sampleLen
	}
	*s = sample{size: size, stride: windowLen, search: search, quota: budget / 8}
	if size > budget {
		s.stride = size / (budget / windowLen) &^ 7
	}
}

// feed takes the next bytes of the message.
func (s *sample) feed(b []byte) {
	for len(b) > 0 && s.quota > 0 {
		if n := s.off % 8; n != 0 || len(b) < 8 { // a word that is cut
			k := copy(s.partial[n:], b)
			b, s.off = b[k:], s.off+k
			if n+k == 8 {
				at := (s.off - 8) % s.stride
				s.take(s.partial[:], at < windowLen)
				s.endWindow(at + 8)
			}
			continue
		}
		at := s.off % s.stride
		window := at < windowLen
		n := s.stride - at
		if window {
			n = windowLen - at
		}
		n = min(len(b), n)
		if window || s.hungry {
			n &^= 7
			s.take(b[:n], window)
		}
		b, s.off = b[n:], s.off+n
		s.endWindow(at + n)
	}
}

// take counts whole words: all words of a window, elsewhere only words that are not zero.
func (s *sample) take(b []byte, window bool) {
	if !window && !s.hungry {
		return
	}
	for ; len(b) >= 8 && s.quota > 0; b = b[8:] {
		if w := binary.LittleEndian.Uint64(b); w != 0 || window {
			s.word(w)
			s.quota--
		}
	}
}

// endWindow decides at the end of a window whether to look on behind it.
func (s *sample) endWindow(at int) {
	if at == windowLen {
		s.hungry = s.search && 4*(s.words-s.zero64) < s.words
	}
}

// verdict judges the words that were counted of the message.
func (s *sample) verdict() verdict { return s.evidence.verdict(s.size) }
