// Package all lists the protocols that gradproxy understands.
package all

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/flower"
	"github.com/gradproxy/gradproxy/parser/gloo"
	"github.com/gradproxy/gradproxy/parser/grpcany"
	"github.com/gradproxy/gradproxy/parser/internal/mesh"
	"github.com/gradproxy/gradproxy/parser/nvflare"
	"github.com/gradproxy/gradproxy/parser/pslite"
	"github.com/gradproxy/gradproxy/parser/tensorflow"
)

// Protocols returns a new value of every protocol, in the order in which they are tried. The facts that connections of
// a job share live in these values: a process must keep one set.
//
// It is not inlined, since each caller would then compile all generic types of the protocols anew.
//
//go:noinline
func Protocols() []parser.Protocol {
	meshes := new(mesh.Table)
	return []parser.Protocol{
		&gloo.Protocol{Meshes: meshes},
		new(pslite.Protocol),
		new(tensorflow.Protocol),
		new(flower.Protocol),
		new(nvflare.Protocol),
		&grpcany.Protocol{Meshes: meshes},
	}
}
