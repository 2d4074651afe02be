package inspect

import (
	"cmp"
	"io"

	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Value is one value of a tensor, as one message carries it.
type Value struct {
	// Tensor is the tensor whose value it is. Its Role is the role that all of the value would be coded as: Unknown
	// where blocks differ.
	Tensor tensor.Tensor
	Data   []byte // the receiver's to keep
}

// maxValue bounds the bytes that are collected of one tensor.
const maxValue = 256 << 20

// Values reads a capture, as Read does, and calls each with every value of a tensor that came whole, in the order in
// which they end. Larger ones than 256 MiB are left out. c.Policies are not used here. With an error, each was called
// with the values that came before it.
func Values(r io.Reader, c Config, each func(Value)) error {
	c.MaxCopies = cmp.Or(c.MaxCopies, 1<<30)
	x := newInspector(c)
	x.each = each
	err := capture.Read(r, x.open)
	for _, w := range x.wires {
		w.finish()
	}
	return cmp.Or(err, x.err)
}

// A wholeValue is a Value that has come in part.
type wholeValue struct {
	data []byte
	role tensor.Role // of all blocks so far
}

// add adds a block of a value with its role, and calls each if it is the last one.
func (w *wholeValue) add(v *value, role tensor.Role, each func(Value)) {
	t := v.tensor
	switch {
	case t.Size > maxValue:
		return
	case v.off == 0:
		w.data, w.role = make([]byte, 0, t.Size), role
	case role != w.role:
		w.role = tensor.Unknown
	}
	if len(w.data) != v.off {
		return // its beginning was not seen
	}
	if w.data = append(w.data, v.data...); len(w.data) < t.Size {
		return
	}
	t.Off, t.Hold, t.Role = 0, t.Size, w.role
	each(Value{t, w.data})
	w.data = nil
}
