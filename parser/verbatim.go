package parser

// Verbatim is the Parser of streams that no other parser understands: every byte is opaque.
type Verbatim struct{}

// Next returns the whole of b as opaque bytes.
func (Verbatim) Next(b []byte) (Segment, error) { return Segment{Len: len(b)}, nil }
