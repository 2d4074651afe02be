package coder

import (
	"strings"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Codecs makes the codecs that a peer declares from their texts, and keeps the first maxTexts of them.
type Codecs struct {
	New   func(text string) (codecs.Codec, error)
	known map[string]codecs.Codec
}

// maxTexts bounds the codecs that a peer can make one Codecs keep.
const maxTexts = 64

// Get returns the codec of a text.
func (s *Codecs) Get(text string) (codecs.Codec, error) {
	if c, ok := s.known[text]; ok {
		return c, nil
	}
	c, err := s.New(text)
	if err != nil {
		return nil, err
	}
	if s.known == nil {
		s.known = map[string]codecs.Codec{}
	}
	if len(s.known) < maxTexts {
		s.known[text] = c
	}
	return c, nil
}

// Name returns a codec text without its parameters, as hellos list and metrics show it: there are few.
func Name(text string) string {
	before, _, _ := strings.Cut(text, "(")
	return before
}

// MaxEncoded returns the maximum length of the encoding of a block that is declared as d. A lossless codec answers
// ErrUnsuited if it gains nothing, so its encodings are far shorter than its MaxEncodedLen, which knows no element
// type.
func MaxEncoded(c codecs.Codec, d *frame.Declaration) int {
	if !codecs.Lossy(c) {
		return d.Size() + frame.MaxSmall
	}
	return max(c.MaxEncodedLen(d.N), d.Size())
}

// FrameRoom returns the bytes of room that it takes to make the frame of a block that is declared as d, by c or by a
// lossless codec.
func FrameRoom(c codecs.Codec, d *frame.Declaration) int {
	n := d.Size()
	if codecs.Lossy(c) {
		n = max(n, c.MaxEncodedLen(d.N))
	}
	return frame.MaxHeader + 1 + n + n/64 // codecs without loss notice a little late that they gain nothing
}
