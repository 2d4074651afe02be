package grpcany

import (
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// maxLabel bounds a text that is kept for people, in bytes.
const maxLabel = 40

// labelOf names a leaf for people: by the text beside it, such as a tensor's name, where texts are part of its name,
// then the method and the numbers of its fields, as in "dense/kernel, Aggregator.GetTensor field 3.7".
//
// Leaves that are alike are told by which, their number in the message, and by the message's number in its call.
func labelOf(method, text string, p protoscan.Path, which, number int) (l parser.Label) {
	if text != "" {
		l.Name = text + ", "
	}
	l.Name += method + " field " + fields(p)
	if which > 0 {
		l.Name += fmt.Sprintf(", number %d", which+1)
	}
	if number > 0 {
		l.Name += fmt.Sprintf(", message %d", number+1)
	}
	return l
}

// fields writes the numbers of the fields that p names.
func fields(p protoscan.Path) string {
	var all []string
	for ; p > 0; p >>= 8 {
		all = append([]string{fmt.Sprint(uint8(p))}, all...)
	}
	return strings.Join(all, ".")
}

// methodName returns the name of a method for people: Aggregator.GetTensor of /openfl.aggregator.Aggregator/GetTensor.
func methodName(path string) string {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return npy.Short(service[strings.LastIndexByte(service, '.')+1:]+"."+method, maxLabel)
}
