// Package all lists the protocols that gradproxy understands.
package all

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo"
	"github.com/gradproxy/gradproxy/parser/pslite"
)

// Protocols returns a new value of every protocol, in the order in which they are tried. What the connections of a job
// teach each other lives in these values: a process keeps one set.
func Protocols() []parser.Protocol {
	return []parser.Protocol{
		new(gloo.Protocol),
		new(pslite.Protocol),
	}
}
