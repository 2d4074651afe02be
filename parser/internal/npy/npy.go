// Package npy finds the elements in files as NumPy and safetensors write them, as their bytes come.
//
// A .npy file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html) is
//
//	93 "NUMPY", version (2 bytes: 1 to 3, 0), length of the header (little-endian, 2 bytes in version 1, else 4),
//	the header: {'descr': '<f4', 'fortran_order': False, 'shape': (200, 80), }, padded with spaces, a newline
//	the elements
package npy

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Header tells the elements of a .npy file.
type Header struct {
	DType   tensor.DType
	Fortran bool   // the first index varies fastest
	Shape   string // as the file has it
	Len     int    // bytes before the elements
	Data    int    // bytes of all elements
}

// Dims writes the shape for people: "200×80"; "scalar" of one element without dimensions.
func (h *Header) Dims() string {
	dims := strings.FieldsFunc(h.Shape, func(r rune) bool { return r == ',' || r == ' ' || r == 'L' })
	if len(dims) == 0 {
		return "scalar"
	}
	return Short(strings.Join(dims, "×"), maxDims)
}

// maxDims bounds a shape for people, in bytes.
const maxDims = 64

// Short cuts a text for people after limit bytes. The result keeps no longer text in memory that s is a part of.
func Short(s string, limit int) string {
	if len(s) <= limit {
		return strings.Clone(s)
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// MaxHeader bounds the bytes before the elements of a file that is understood.
const MaxHeader = 4 << 10

var magic = []byte("\x93NUMPY")

// descrs are the element types, less the byte order, that are understood. Booleans are bytes.
var descrs = map[string]tensor.DType{
	"f4": tensor.Float32, "f8": tensor.Float64, "f2": tensor.Float16,
	"i1": tensor.Int8, "u1": tensor.Uint8, "b1": tensor.Uint8, "i2": tensor.Int16, "u2": tensor.Uint16,
	"i4": tensor.Int32, "u4": tensor.Uint32, "i8": tensor.Int64, "u8": tensor.Uint64,
}

// headerLen returns the bytes before the elements of a file that begins with b, and how many bytes are needed to tell
// more; 0: b is no such beginning, or is understood no further.
func headerLen(b []byte) (n int, whole bool) {
	if m := min(len(b), len(magic)); !bytes.Equal(b[:m], magic[:m]) {
		return 0, false
	}
	if len(b) < 8 {
		return 8, false
	}
	switch wide := b[6] > 1; {
	case b[6] < 1 || b[6] > 3 || b[7] != 0:
		return 0, false
	case wide && len(b) < 12:
		return 12, false
	case !wide && len(b) < 10:
		return 10, false
	case wide:
		n = 12 + int(min(binary.LittleEndian.Uint32(b[8:]), MaxHeader))
	default:
		n = 10 + int(binary.LittleEndian.Uint16(b[8:]))
	}
	if n > MaxHeader {
		return 0, false
	}
	return n, len(b) >= n
}

// Parse reads the bytes before the elements. b must hold all of these bytes and no others.
func Parse(b []byte) (h Header, ok bool) {
	n, whole := headerLen(b)
	if !whole || n != len(b) {
		return h, false
	}
	text := b[10:]
	if b[6] > 1 {
		text = b[12:]
	}
	h.Len = n
	return h, h.dict(string(text))
}

// dict reads the header's dictionary.
func (h *Header) dict(text string) bool {
	text, ok := strings.CutPrefix(strings.TrimRight(text, " \n"), "{")
	if text, ok = cutSuffix(text, "}", ok); !ok {
		return false
	}
	var seen, elements = 0, 1
	for {
		if text = strings.TrimLeft(text, ", "); text == "" {
			break
		}
		name, rest, ok := cutQuoted(text)
		if rest, ok = cutPrefix(strings.TrimLeft(rest, " "), ":", ok); !ok {
			return false
		}
		rest = strings.TrimLeft(rest, " ")
		switch name {
		case "descr":
			var descr string
			if descr, rest, ok = cutQuoted(rest); !ok || !h.descr(descr) {
				return false
			}
			seen |= 1
		case "fortran_order":
			if rest, ok = strings.CutPrefix(rest, "False"); !ok {
				if rest, ok = strings.CutPrefix(rest, "True"); !ok {
					return false
				}
				h.Fortran = true
			}
			seen |= 2
		case "shape":
			if rest, ok = strings.CutPrefix(rest, "("); !ok {
				return false
			}
			if h.Shape, rest, ok = strings.Cut(rest, ")"); !ok {
				return false
			}
			if elements, ok = product(h.Shape); !ok {
				return false
			}
			seen |= 4
		default:
			return false
		}
		text = rest
	}
	if seen != 7 || elements > maxData/h.DType.Size() {
		return false
	}
	h.Data = elements * h.DType.Size()
	return true
}

// maxData bounds the bytes of all elements.
const maxData = 1 << 40

// product returns the number of elements of a shape: "" is one element.
func product(shape string) (int, bool) {
	n := 1
	for _, dim := range strings.Split(strings.TrimSuffix(strings.TrimRight(shape, " "), ","), ",") {
		if dim = strings.TrimSpace(dim); dim == "" && strings.TrimSpace(shape) == "" {
			return 1, true
		}
		d, err := strconv.ParseUint(strings.TrimSuffix(dim, "L"), 10, 40)
		if err != nil || d > 0 && n > maxData/int(d) {
			return 0, false
		}
		n *= int(d)
	}
	return n, true
}

// descr reads an element type. Types of more than one byte must be little-endian.
func (h *Header) descr(s string) bool {
	if len(s) != 3 {
		return false
	}
	d, ok := descrs[s[1:]]
	h.DType = d
	return ok && (s[0] == '<' || d.Size() == 1 && s[0] == '|')
}

// cutQuoted returns the text in quotation marks at the beginning of s, and the text behind.
func cutQuoted(s string) (inside, rest string, ok bool) {
	if s == "" || s[0] != '\'' && s[0] != '"' {
		return "", s, false
	}
	return strings.Cut(s[1:], s[:1])
}

// cutPrefix is strings.CutPrefix, if ok.
func cutPrefix(s, prefix string, ok bool) (string, bool) {
	s, found := strings.CutPrefix(s, prefix)
	return s, found && ok
}

// cutSuffix is strings.CutSuffix, if ok.
func cutSuffix(s, suffix string, ok bool) (string, bool) {
	s, found := strings.CutSuffix(s, suffix)
	return s, found && ok
}
