package coder

import (
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Decode sets dst from the body of a Block, which is form and src. form must be FormCoded, whose encoding dec reverses,
// or FormRaw. codec names the codec in errors. All errors wrap frame.ErrFrame. Decode must be called in turn. After an
// error dst must not be delivered.
func Decode(dst []byte, form byte, dec codecs.Decoder, src []byte, codec string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder of %s: panic: %v", frame.ErrFrame, codec, p)
		}
	}()
	switch {
	case form == frame.FormCoded:
		if err := dec.Decode(dst, src); err != nil {
			return fmt.Errorf("%w: block of %s: %w", frame.ErrFrame, codec, err)
		}
	case form != frame.FormRaw:
		return fmt.Errorf("%w: block of form %d", frame.ErrFrame, form)
	case copy(dst, src) != len(dst) || len(src) != len(dst):
		return fmt.Errorf("%w: raw block of %d bytes in a slot of %d", frame.ErrFrame, len(src), len(dst))
	}
	return nil
}
