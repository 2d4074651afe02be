package nvflaresim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
)

// Safetensors returns a file with one array, of elements of size bytes, as safetensors writes it.
func Safetensors(name, dtype string, size int, elements []byte) []byte {
	text := fmt.Sprintf(`{"%s":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}`, name, dtype, len(elements)/size, len(elements))
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), elements...)
}

// NPY returns an array of elements of size bytes, as numpy.save writes it.
func NPY(descr string, size int, elements []byte) []byte {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, len(elements)/size)
	text += strings.Repeat(" ", 117-len(text)) + "\n"
	return append(append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), 0), append([]byte(text), elements...)...)
}

// Zip returns a ZIP file with one member, as numpy.savez writes it, but for its directory.
func Zip(name string, member []byte) []byte {
	sum := crc32.ChecksumIEEE(member)
	b := binary.LittleEndian.AppendUint32([]byte("PK\x03\x04\x2d\x00\x00\x00\x00\x00\x00\x00\x21\x00"), sum)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(len(name)), 0, 20, 0)
	b = append(append(b, name...), 1, 0, 16, 0)
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(len(member))), uint64(len(member)))
	return append(append(b, member...), bytes.Repeat([]byte("directory "), 8)...)
}

// fileOf returns the file of an array.
func fileOf(name string, values []float32) []byte {
	elements := make([]byte, 0, 4*len(values))
	for _, v := range values {
		elements = binary.LittleEndian.AppendUint32(elements, math.Float32bits(v))
	}
	return Safetensors(name, "F32", 4, elements)
}

// valuesOf returns the values of a file that fileOf made.
func valuesOf(file []byte) ([]float32, error) {
	if len(file) < 8 || binary.LittleEndian.Uint64(file) > uint64(len(file)-8) {
		return nil, fmt.Errorf("%w: a file of %d bytes", errMessage, len(file))
	}
	b := file[8+binary.LittleEndian.Uint64(file):]
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: an array of %d bytes", errMessage, len(b))
	}
	values := make([]float32, len(b)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values, nil
}
