// Package npy reads NumPy's .npy files of one or two dimensions, as [NEP 1] lays them out: enough for recorded tensors.
//
// [NEP 1]: https://numpy.org/neps/nep-0001-npy-format.html
package npy

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/tensor"
)

// An Array is the contents of a file.
type Array struct {
	DType tensor.DType
	Rows  int    // 1 if the file has one dimension
	Cols  int    // elements in a row
	Data  []byte // row by row, little-endian; part of the bytes given to Parse
}

// Row returns the elements of row i, which share the Array's memory.
func (a Array) Row(i int) []byte {
	n := a.Cols * a.DType.Size()
	return a.Data[i*n : (i+1)*n : (i+1)*n]
}

// dtypes are the descr of little-endian arrays.
var dtypes = map[string]tensor.DType{
	"<f2": tensor.Float16, "<f4": tensor.Float32, "<f8": tensor.Float64,
	"|i1": tensor.Int8, "|u1": tensor.Uint8, "<i2": tensor.Int16, "<u2": tensor.Uint16,
	"<i4": tensor.Int32, "<u4": tensor.Uint32, "<i8": tensor.Int64, "<u8": tensor.Uint64,
	"<V2": tensor.BFloat16, // as ml_dtypes writes it
}

// header is the dictionary that NumPy writes, in the order in which it writes it.
var header = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \}\s*$`)

// Parse returns the array in b, a whole file. It shares b's memory.
func Parse(b []byte) (Array, error) {
	const magic = "\x93NUMPY"
	if len(b) < 12 || string(b[:6]) != magic {
		return Array{}, fmt.Errorf("not a .npy file: it does not begin with %q", magic)
	}
	n, at := int(binary.LittleEndian.Uint16(b[8:])), 10
	if b[6] >= 2 {
		n, at = int(binary.LittleEndian.Uint32(b[8:])), 12
	}
	if n > len(b)-at {
		return Array{}, fmt.Errorf("its header of %d bytes is cut short", n)
	}
	h := header.FindSubmatch(b[at : at+n])
	if h == nil {
		return Array{}, fmt.Errorf("unknown header %.200q", b[at:at+n])
	}
	d, ok := dtypes[string(h[1])]
	if !ok {
		return Array{}, fmt.Errorf("elements of type %q; save little-endian numbers", h[1])
	}
	rows, cols, err := shape(string(h[3]))
	if err != nil {
		return Array{}, err
	}
	if string(h[2]) == "True" && rows > 1 {
		return Array{}, fmt.Errorf("it is stored column by column; save numpy.ascontiguousarray of it")
	}
	data := b[at+n:]
	if cols > 0 && rows > len(data)/d.Size()/cols || rows*cols*d.Size() != len(data) {
		return Array{}, fmt.Errorf("%d bytes are not %d x %d elements of %v", len(data), rows, cols, d)
	}
	return Array{d, rows, cols, data}, nil
}

func shape(s string) (rows, cols int, err error) {
	rows = 1
	dims := strings.Split(strings.TrimSuffix(strings.TrimSpace(s), ","), ",")
	switch len(dims) {
	case 1:
	case 2:
		if rows, err = strconv.Atoi(strings.TrimSpace(dims[0])); err != nil {
			return 0, 0, fmt.Errorf("shape (%s)", s)
		}
	default:
		return 0, 0, fmt.Errorf("shape (%s): give it one dimension, or two: steps, elements", s)
	}
	if cols, err = strconv.Atoi(strings.TrimSpace(dims[len(dims)-1])); err != nil {
		return 0, 0, fmt.Errorf("shape (%s): give it one dimension, or two: steps, elements", s)
	}
	return rows, cols, nil
}
