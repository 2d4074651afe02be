package pslite

import "github.com/gradproxy/gradproxy/tensor"

// A shape says how keys and vals belong together.
type shape uint8

const (
	array   shape = iota // one key's dense array
	rows                 // rows of one key's array
	codes                // codes of an array, by a compressor of the framework
	list                 // many keys, of an application that is not known
	indices              // the keys after the first one
	lengths              // of many values
	every                // all keys of a list
)

// A layout describes a message's vals, by its first two frames.
type layout struct {
	shape shape
	dtype tensor.DType
	key   uint64 // of the array; in a list 0
	set   uint64 // hash of the keys, if there are more than the array's
	known bool   // the message keeps the framework's conventions, which give the array and its type
}

// layoutOf returns the layout of a message with data, whose vals have size bytes.
func layoutOf(m *meta, k *keys, size int) layout {
	l := layout{shape: list, dtype: dataTypes[m.types[1]]}
	width := keyWidth(m.types[0])
	if width == 0 || k.bytes == 0 || k.bytes%width != 0 {
		l.dtype = tensor.NoDType
		return l
	}
	n := k.bytes / width
	if m.types[1] == typeOther && m.frames == 3 {
		if r, d, ok := parseHead(m); ok && l.conventional(m, r, d, n, size) {
			l.known = true
		} else {
			l = layout{shape: list}
		}
	}
	switch {
	case !l.known:
		l.set = k.sum()
	case l.shape == codes && n == 2:
		l.key = k.at(1, width) // the first one is the number of elements
	case l.shape == rows:
		l.key, l.set = k.at(0, width), k.sum()
	default:
		l.key = k.at(0, width)
	}
	if size%l.dtype.Size() != 0 {
		l.dtype, l.known = tensor.NoDType, false
	}
	return l
}

// conventional sets shape and type by the head's request and element type. It reports false if n keys and size bytes
// do not fit them.
func (l *layout) conventional(m *meta, r request, d tensor.DType, n, size int) bool {
	l.dtype = d
	switch r {
	case dense:
		l.shape = array
		return n == 1
	case rowSparse:
		l.shape = rows
		return n == 1 && size == 0 || n > 1 && size%(n-1) == 0 && size/(n-1)%d.Size() == 0
	}
	if m.kind() == answer && !m.packed { // MXNet: the whole array
		l.shape = array
		return n == 1 && d == tensor.Float32
	}
	l.shape, l.dtype = codes, tensor.NoDType
	return n == 2 || n == 1 && m.packed
}
