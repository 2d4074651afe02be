package tensorflow

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
	"github.com/gradproxy/gradproxy/tensor"
)

// An elementType is one of TensorFlow's data types (tensorflow/core/framework/types.proto) as it lies in memory.
type elementType struct {
	dtype tensor.DType // for lossless codecs
	size  int          // bytes of an element; 0: elements have no fixed size, or the type is not known
	value bool         // elements are real numbers of that dtype
}

// elementTypes lists the data types by their numbers. Types with dtype 0 are read as bytes.
var elementTypes = [...]elementType{
	1: {tensor.Float32, 4, true}, 2: {tensor.Float64, 8, true}, 14: {tensor.BFloat16, 2, true}, 19: {tensor.Float16, 2, true},
	3: {tensor.Int32, 4, false}, 4: {tensor.Uint8, 1, false}, 5: {tensor.Int16, 2, false}, 6: {tensor.Int8, 1, false}, 9: {tensor.Int64, 8, false},
	10: {tensor.Uint8, 1, false},                                    // bool
	8:  {tensor.Float32, 8, false}, 18: {tensor.Float64, 16, false}, // complex
	11: {tensor.Int8, 1, false}, 12: {tensor.Uint8, 1, false}, 13: {tensor.Int32, 4, false}, 15: {tensor.Int16, 2, false}, 16: {tensor.Uint16, 2, false}, // quantized
	17: {tensor.Uint16, 2, false}, 22: {tensor.Uint32, 4, false}, 23: {tensor.Uint64, 8, false},
	24: {0, 1, false}, 25: {0, 1, false}, 26: {0, 1, false}, 27: {0, 1, false}, 28: {0, 1, false}, // of 8 bits
	29: {0, 1, false}, 30: {0, 1, false}, 31: {0, 1, false}, 32: {0, 1, false}, // of 2 and 4 bits, each in a byte
}

// reference is added to a data type's number for a reference to such a tensor.
const reference = 100

// typeOf returns the type of that number.
func typeOf(number uint64) elementType {
	if number > reference {
		number -= reference
	}
	if number < uint64(len(elementTypes)) {
		return elementTypes[number]
	}
	return elementType{}
}

// maxTensor is the largest tensor that TensorFlow sends, in bytes.
const maxTensor = 1<<31 - 1

// A shape is a tensor's shape as its dimensions come. The zero shape is a scalar's.
type shape struct {
	dims     int
	elements uint64 // of the dimensions so far, at most tooMany
	hash     uint64
	first    [4]uint64 // dimensions, for people
}

// String returns the shape as people write it; "" if it has more than four dimensions, or is a scalar's.
func (s *shape) String() string {
	if s.dims > len(s.first) {
		return ""
	}
	var all []string
	for _, n := range s.first[:s.dims] {
		all = append(all, strconv.FormatUint(n, 10))
	}
	return strings.Join(all, "×")
}

// tooMany elements are more than a tensor can have.
const tooMany = maxTensor + 1

// add adds a dimension.
func (s *shape) add(n uint64) {
	if s.dims == 0 {
		s.elements = 1
	}
	if s.dims < len(s.first) {
		s.first[s.dims] = n
	}
	s.dims++
	s.elements = min(s.elements*min(n, tooMany), tooMany)
	s.hash = mix.Words(s.hash, n)
}

// size returns the bytes of a tensor of that shape and type.
func (s *shape) size(e elementType) int {
	if s.dims == 0 {
		return e.size
	}
	return int(s.elements) * e.size
}

// A content is a TensorProto (tensorflow/core/framework/tensor.proto) as its fields come.
type content struct {
	number uint64 // of the data type
	shape  shape
	listed bool // the last field of values is a list
}

// Fields of a TensorProto, below its own path.
const (
	fieldDType   = 1
	fieldShape   = 2
	fieldDim     = 2 // of a shape
	fieldDimSize = 1 // of a dimension
	fieldContent = 4
	fieldFloats  = 5 // float_val
	fieldDoubles = 6 // double_val
)

// Types whose values have a list of their own that lies as a content does.
const (
	typeFloat  = 1
	typeDouble = 2
)

// field says how to read a field of the TensorProto at path proto. isContent: it is the tensor_content, or a packed
// list of values that lie as a content's do.
func (c *content) field(proto, p protoscan.Path) (a protoscan.Action, isContent bool) {
	switch p {
	case proto:
		*c = content{}
		return protoscan.Descend, false
	case proto.In(fieldShape):
		c.shape = shape{}
		return protoscan.Descend, false
	case proto.In(fieldShape).In(fieldDim):
		return protoscan.Descend, false
	case proto.In(fieldContent):
		c.listed = false
		return protoscan.Emit, true
	case proto.In(fieldFloats):
		c.listed = c.number == typeFloat
	case proto.In(fieldDoubles):
		c.listed = c.number == typeDouble
	default:
		return protoscan.Skip, false
	}
	if c.listed {
		return protoscan.Emit, true
	}
	return protoscan.Skip, false
}

// numbered takes a number in the TensorProto at path proto. A dimension of size 0 must be written: TensorFlow does, and
// one that is left out makes the shape's size unlike the content's.
func (c *content) numbered(proto, p protoscan.Path, v uint64) {
	switch p {
	case proto.In(fieldDType):
		c.number = v
	case proto.In(fieldShape).In(fieldDim).In(fieldDimSize):
		c.shape.add(v)
	}
}

// value returns the tensor whose content has n bytes. ok is false if type and shape do not account for that many.
func (c *content) value(n int) (t tensor.Tensor, e elementType, ok bool) {
	e = typeOf(c.number)
	if e.size == 0 || c.shape.size(e) != n {
		return t, e, false
	}
	t = tensor.Tensor{Role: tensor.Exact, DType: e.dtype, Size: n, Proof: tensor.ByWire}
	if e.dtype == tensor.NoDType {
		t.Why = tensor.DTypeUnknown
	}
	return t, e, true
}

// hashOf returns a hash of a text, for keys.
func hashOf(text string) uint64 { return xxhash.Sum64String(text) }
