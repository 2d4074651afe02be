package codecs

import "errors"

var (
	// ErrUnsuited says that a codec cannot or should not code these elements (a NaN, an element type that it
	// does not take, no gain); they travel as they are. It is a normal answer, not a fault.
	ErrUnsuited = errors.New("codecs: unsuited")
	// ErrCorrupt says that bytes are not an encoding that the Decoder's Encoder can have made.
	ErrCorrupt = errors.New("codecs: corrupt encoding")
	// ErrText says that a text does not name a codec with parameters that it takes.
	ErrText = errors.New("codecs: bad codec text")
)
