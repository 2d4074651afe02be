package lossless

import "github.com/gradproxy/gradproxy/tensor"

// A form is the first byte of a chunk: how its elements become planes, and how they were changed before.
type form byte

const (
	formStored form = iota
	formRepeat
	formBytes
	formInt16
	formInt32
	formInt64
	formFloat16
	formFloat32      // three planes, the first of two bytes an element
	formFloat32Split // four planes of one byte
	formFloat64
	forms

	formKind   form = 1<<4 - 1
	formSparse form = 1 << 4 // zero elements are left out
	formRising form = 1 << 5 // elements are differences to the one before
)

// width returns the bytes in an element.
func (f form) width() int {
	switch f & formKind {
	case formInt16, formFloat16:
		return 2
	case formInt32, formFloat32, formFloat32Split:
		return 4
	case formInt64, formFloat64:
		return 8
	}
	return 1
}

// formOf returns how elements of type d are taken apart, formStored if that is not known.
func formOf(d tensor.DType) form {
	switch d {
	case tensor.Int8, tensor.Uint8:
		return formBytes
	case tensor.Int16, tensor.Uint16:
		return formInt16
	case tensor.Int32, tensor.Uint32:
		return formInt32
	case tensor.Int64, tensor.Uint64:
		return formInt64
	case tensor.Float16, tensor.BFloat16:
		return formFloat16
	case tensor.Float32:
		return formFloat32
	case tensor.Float64:
		return formFloat64
	}
	return formStored
}

// planes returns the number of planes that the elements of f have.
func (f form) planes() int {
	if f&formKind == formFloat32 {
		return 3
	}
	return f.width()
}

// planeLen returns the bytes of plane i of n elements.
func (f form) planeLen(i, n int) int {
	if f&formKind == formFloat32 && i == 0 {
		return 2 * n
	}
	return n
}

// split takes elements, whole groups of eight of them, apart into planes, which are as long as planeLen says.
func (s *scratch) split(f form, planes *[8][]byte, src []byte) {
	p := planes
	switch f & formKind {
	case formBytes:
		copy(p[0], src)
	case formInt16:
		halve(p[0], p[1], src, 8, bytes16)
	case formFloat16:
		splitFloat16(p[0], p[1], src)
	case formFloat32:
		splitFloat32(p[0], p[1], p[2], src)
	case formFloat32Split:
		low := s.halves.room(len(src) / 2)
		splitFloat32(low, p[2], p[3], src)
		halve(p[0], p[1], low, 8, bytes16)
	case formInt32:
		s.split32(p[:4], src)
	case formInt64:
		s.split64(p, src)
	case formFloat64:
		x := s.exchanged.room(len(src))
		mapWords(x, src, exchange64)
		s.split64(p, x)
	}
}

func (s *scratch) split32(p [][]byte, src []byte) {
	h := len(src) / 2
	b := s.halves.room(2 * h)
	halve(b[:h], b[h:], src, 16, bytes32)
	halve(p[0], p[1], b[:h], 8, bytes16)
	halve(p[2], p[3], b[h:], 8, bytes16)
}

func (s *scratch) split64(p *[8][]byte, src []byte) {
	h := len(src) / 2
	b := s.words.room(2 * h)
	halve(b[:h], b[h:], src, 32, bytes64)
	s.split32(p[:4], b[:h])
	s.split32(p[4:], b[h:])
}

// join reverses split.
func (s *scratch) join(f form, dst []byte, planes *[8][]byte) {
	p := planes
	switch f & formKind {
	case formBytes:
		copy(dst, p[0])
	case formInt16:
		unhalve(dst, p[0], p[1], 8, bytes16)
	case formFloat16:
		joinFloat16(dst, p[0], p[1])
	case formFloat32:
		joinFloat32(dst, p[0], p[1], p[2])
	case formFloat32Split:
		low := s.halves.room(len(dst) / 2)
		unhalve(low, p[0], p[1], 8, bytes16)
		joinFloat32(dst, low, p[2], p[3])
	case formInt32:
		s.join32(dst, p[:4])
	case formInt64:
		s.join64(dst, p)
	case formFloat64:
		s.join64(dst, p)
		mapWords(dst, dst, restore64)
	}
}

func (s *scratch) join32(dst []byte, p [][]byte) {
	h := len(dst) / 2
	b := s.halves.room(2 * h)
	unhalve(b[:h], p[0], p[1], 8, bytes16)
	unhalve(b[h:], p[2], p[3], 8, bytes16)
	unhalve(dst, b[:h], b[h:], 16, bytes32)
}

func (s *scratch) join64(dst []byte, p *[8][]byte) {
	h := len(dst) / 2
	b := s.words.room(2 * h)
	s.join32(b[:h], p[:4])
	s.join32(b[h:], p[4:])
	unhalve(dst, b[:h], b[h:], 32, bytes64)
}
