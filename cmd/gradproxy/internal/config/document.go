package config

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
)

// Types of package strict, which reads files and reports their errors.
type (
	Problem  = strict.Problem
	Problems = strict.Problems
	reader   = strict.Reader
)

// A document is a configuration file that is being read.
type document struct{ strict.Document }

func (d *document) object(fields map[string]reader) reader        { return d.Object(fields) }
func (d *document) at(line *int, read reader) reader              { return d.At(line, read) }
func (d *document) oneOf(use func(i int), words ...string) reader { return d.OneOf(use, words...) }

func value[T any](d *document, dst *T, parse func(string) (T, error)) reader {
	return strict.Value(&d.Document, dst, parse)
}

func values[T any](d *document, dst *[]T, parse func(string) (T, error)) reader {
	return strict.Values(&d.Document, dst, parse)
}

func items[T any](d *document, dst *[]T, item func(*T) reader) reader {
	return strict.Items(&d.Document, dst, item)
}

func lineOf(n ast.Node) int { return strict.LineOf(n) }
