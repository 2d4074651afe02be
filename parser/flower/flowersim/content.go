package flowersim

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Field appends a field that has a length, as Protocol Buffers do.
func Field(b []byte, n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), content)
}

// Number appends a field of an integer.
func Number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// Nested returns v as field path[0] of ... of field path[len(path)-1].
func Nested(v []byte, path ...protowire.Number) []byte {
	for _, n := range path {
		v = Field(nil, n, v)
	}
	return v
}

// numpyArrays is the type of tensors that are .npy files.
var numpyArrays = []byte("numpy.ndarray")

// Parameters returns a Parameters message of .npy files.
func Parameters(files [][]byte) (b []byte) {
	for _, f := range files {
		b = Field(b, 1, f)
	}
	return Field(b, 2, numpyArrays)
}

// Request returns a message of the server in a Join, with Parameters or nil.
func Request(kind Kind, parameters []byte) []byte {
	if parameters != nil {
		parameters = Field(nil, 1, parameters)
	}
	return Nested(parameters, protowire.Number(kind))
}

// okStatus is the status of an answer: code 0, and a text.
var okStatus = Field(nil, 2, []byte("Success"))

// Answer returns a client's answer of one example, with Parameters or nil.
func Answer(kind Kind, parameters []byte) []byte {
	content := Field(nil, 1, okStatus)
	if parameters != nil {
		content = Field(content, 2, parameters)
	}
	return Nested(Number(content, 3, 1), protowire.Number(kind))
}

// RecordSet returns a RecordSet with one record of .npy files, which have these keys.
func RecordSet(record string, files [][]byte, keys ...string) []byte {
	var arrays []byte
	for _, k := range keys {
		arrays = Field(arrays, 1, []byte(k))
	}
	for _, f := range files {
		a := Field(Field(nil, 1, []byte("float32")), 3, numpyArrays)
		arrays = Field(arrays, 2, Field(a, 4, f))
	}
	return Nested(Field(Field(nil, 1, []byte(record)), 2, arrays), 1)
}
