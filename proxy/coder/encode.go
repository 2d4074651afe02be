package coder

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// A Slot is the state that all encoders of one slot have in common, whichever of them is given a block: the blocks take
// turns, and once an encoder has failed in a way that is not allowed, its state is unknown and all blocks travel raw.
// The zero Slot is ready.
type Slot struct {
	Turns
	broken bool // set and read in turn
}

// Encode appends the encoding of src to dst, whose bytes from head on begin with the form of the Block. The elements
// travel whatever goes wrong with the codec: if enc does not encode src, body is dst[:head] with the raw form and src,
// and err is the reason, either codecs.ErrUnsuited or a defect of the codec. Encode must be called in turn.
func (s *Slot) Encode(dst []byte, head int, enc codecs.Encoder, src []byte) (body []byte, err error) {
	body, err = s.append(dst, enc, src)
	if err != nil {
		body = append(append(dst[:head], frame.FormRaw), src...)
	}
	return body, err
}

func (s *Slot) append(dst []byte, enc codecs.Encoder, src []byte) (out []byte, err error) {
	if s.broken {
		return nil, codecs.ErrUnsuited
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v", p)
		}
		s.broken = err != nil && !errors.Is(err, codecs.ErrUnsuited)
	}()
	return enc.Append(dst, src)
}
