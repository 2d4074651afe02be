package flowersim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// npyMagic begins a .npy file of version 1.0 (numpy.lib.format).
const npyMagic = "\x93NUMPY\x01\x00"

// NPYHeader is the length of the header that NPY writes, in bytes.
const NPYHeader = 128

// NPY returns a .npy file of one dimension, of elements of size bytes whose type is descr, as numpy.save writes it.
func NPY(descr string, size int, elements []byte) []byte {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, len(elements)/size)
	room := NPYHeader - len(npyMagic) - 2
	b := make([]byte, 0, NPYHeader+len(elements))
	b = binary.LittleEndian.AppendUint16(append(b, npyMagic...), uint16(room))
	b = append(b, text...)
	b = append(append(b, strings.Repeat(" ", room-len(text)-1)...), '\n')
	return append(b, elements...)
}

// npy returns a as a .npy file.
func npy(a []float32) []byte {
	elements := make([]byte, 0, 4*len(a))
	for _, v := range a {
		elements = binary.LittleEndian.AppendUint32(elements, math.Float32bits(v))
	}
	return NPY("<f4", 4, elements)
}

// parseNPY reads a file that npy made.
func parseNPY(b []byte) ([]float32, error) {
	if len(b) < NPYHeader || !bytes.HasPrefix(b, []byte(npyMagic)) || len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: an array of %d bytes", errMessage, len(b))
	}
	b = b[NPYHeader:]
	a := make([]float32, len(b)/4)
	for i := range a {
		a[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return a, nil
}
