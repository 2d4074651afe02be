package flowersim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// An Object is a part of a message as releases from 1.20 on send it, under the hash of its content, with the objects
// that it refers to.
type Object struct {
	ID       string
	Content  []byte
	Children []Object
}

// NewObject makes an object of a class.
func NewObject(class string, body []byte, children ...Object) Object {
	var ids []string
	for _, c := range children {
		ids = append(ids, c.ID)
	}
	content := append([]byte(fmt.Sprintf("%s %s %d\x00", class, strings.Join(ids, ","), len(body))), body...)
	sum := sha256.Sum256(content)
	return Object{hex.EncodeToString(sum[:]), content, children}
}

// ArrayObject makes the objects of an array, in chunks of n bytes of its .npy file.
func ArrayObject(file []byte, n int) Object {
	var chunks []Object
	for len(file) > 0 {
		m := min(n, len(file))
		chunks = append(chunks, NewObject("ArrayChunk", file[:m]))
		file = file[m:]
	}
	return NewObject("Array", []byte(`{"stype": "numpy.ndarray"}`), chunks...)
}

// ModelObject makes the objects of a message with arrays.
func ModelObject(tag string, arrays ...Object) Object {
	config := NewObject("ConfigRecord", []byte("config of "+tag))
	return NewObject("Message", []byte(tag), NewObject("RecordDict", []byte(tag), config, NewObject("ArrayRecord", []byte("{}"), arrays...)))
}

// Tree returns the ObjectTree of o.
func (o Object) Tree() []byte {
	b := Field(nil, 1, []byte(o.ID))
	for _, c := range o.Children {
		b = Field(b, 2, c.Tree())
	}
	return b
}

// LeavesFirst calls f with all objects of the tree, children first, which is the order in which they are sent.
func (o Object) LeavesFirst(f func(Object)) {
	for _, c := range o.Children {
		c.LeavesFirst(f)
	}
	f(o)
}
