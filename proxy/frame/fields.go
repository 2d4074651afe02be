package frame

import "encoding/binary"

// Fields reads a body's parts one after another. Short is set once one is missing, and all that follow are zero.
type Fields struct {
	B     []byte // not read yet
	Short bool
}

// Next reads n bytes.
func (f *Fields) Next(n int) []byte {
	if f.Short || n < 0 || n > len(f.B) {
		f.Short = true
		return nil
	}
	b := f.B[:n]
	f.B = f.B[n:]
	return b
}

// Byte reads a byte.
func (f *Fields) Byte() byte {
	if b := f.Next(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads 8 bytes, little-endian.
func (f *Fields) Uint64() uint64 {
	if b := f.Next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Int reads a varint that must fit a non-negative int.
func (f *Fields) Int() int {
	x, n := binary.Uvarint(f.B)
	if f.Short || n <= 0 || x > 1<<62 {
		f.Short = true
		return 0
	}
	f.B = f.B[n:]
	return int(x)
}

// Text reads a text of AppendText.
func (f *Fields) Text() string { return string(f.Next(f.Int())) }
