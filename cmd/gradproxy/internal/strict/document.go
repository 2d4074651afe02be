// Package strict reads YAML files in which nothing is overlooked: an unknown key, a value of the wrong kind or a
// missing one is an error with its line, and all errors of a file are reported at once.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A Document is a YAML file that is being read. Its problems add up, so that all are reported at once.
type Document struct {
	File     string // its name, in problems
	Begin    string // how such a file begins, for one that is empty: "site: NAME"
	Problems Problems

	anchors map[string]ast.Node
}

// A Reader takes a value out of a node. where is the node's place, as in "peers[0].name".
type Reader func(n ast.Node, where string)

// Parse returns the root of the document, or nil.
func (d *Document) Parse(text []byte) ast.Node {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		d.Problems = append(d.Problems, Problem{File: d.File, Line: 1, Message: "the file is UTF-16: save it as UTF-8"})
		return nil
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, message := 0, err.Error()
		if y := yaml.Error(nil); errors.As(err, &y) {
			line, message = y.GetToken().Position.Line, y.GetMessage()
		}
		if lines := strings.Split(string(text), "\n"); line > 0 && line <= len(lines) && tabbed(lines[line-1]) {
			message = "the line begins with a tab: indent with spaces"
		}
		d.Problems = append(d.Problems, Problem{File: d.File, Line: line, Message: "not YAML: " + OneLine(message)})
		return nil
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		d.Problems = append(d.Problems, Problem{File: d.File, Message: "one YAML document is needed: begin with " + d.Begin})
		return nil
	}
	for _, n := range ast.Filter(ast.AnchorType, f.Docs[0].Body) {
		a := n.(*ast.AnchorNode)
		if d.anchors == nil {
			d.anchors = map[string]ast.Node{}
		}
		d.anchors[a.Name.String()] = a.Value
	}
	for _, n := range ast.Filter(ast.AliasType, f.Docs[0].Body) {
		if name := n.(*ast.AliasNode).Value.String(); d.anchors[name] == nil {
			d.Errorf(n, "", "nothing is anchored as &%s", OneLine(name))
			return nil
		}
	}
	return f.Docs[0].Body
}

// tabbed reports whether the blanks that a line begins with have a tab.
func tabbed(line string) bool {
	return strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t")
}

// OneLine returns s with every run of blanks and line breaks as one blank.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// LineOf returns the line at which a node begins, 0 if that is not known.
func LineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken().Position.Line
	}
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// Errorf notes an error at n.
func (d *Document) Errorf(n ast.Node, where, format string, args ...any) {
	d.Problems = append(d.Problems, Problem{File: d.File, Line: LineOf(n), Where: where, Message: fmt.Sprintf(format, args...)})
}

// Resolve sees through anchors, aliases and tags.
func (d *Document) Resolve(n ast.Node) ast.Node {
	for range 8 { // an alias of an alias of ...: no one writes more
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = d.anchors[v.Value.String()]
		case *ast.TagNode:
			n = v.Value
		default:
			return n
		}
	}
	return n
}

// Object reads a mapping with exactly the keys of fields. An unknown key is an error.
func (d *Document) Object(fields map[string]Reader) Reader {
	return func(n ast.Node, where string) {
		var pairs []*ast.MappingValueNode
		switch v := d.Resolve(n).(type) {
		case *ast.MappingNode:
			pairs = v.Values
		case *ast.MappingValueNode:
			pairs = []*ast.MappingValueNode{v}
		default:
			d.Errorf(n, where, "a mapping is needed: %s", keysOf(fields))
			return
		}
		for _, p := range pairs {
			key := p.Key.GetToken().Value
			place := strings.TrimPrefix(where+"."+key, ".")
			read, ok := fields[key]
			switch {
			case ok && isNull(p.Value):
				d.Errorf(p.Key, place, "there is no value: write one, or leave the key out")
			case ok:
				read(p.Value, place)
			default:
				d.Errorf(p.Key, place, "unknown key: %s", suggest(key, fields))
			}
		}
	}
}

func isNull(n ast.Node) bool { _, ok := n.(*ast.NullNode); return ok || n == nil }

// keysOf lists the keys that there are.
func keysOf(fields map[string]Reader) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return "its keys are " + strings.Join(names, ", ")
}

// suggest names the key that was meant, if one is close, or else all.
func suggest(key string, fields map[string]Reader) string {
	if best := Nearest(key, maps.Keys(fields)); best != "" {
		return "did you mean " + best + "?"
	}
	return keysOf(fields)
}

// Nearest returns the name that a mistyped word is like; "": it is like none.
func Nearest(word string, names iter.Seq[string]) string {
	best, nearest := "", 3 // more than two letters off is another word
	for name := range names {
		if n := distance(strings.ToLower(word), name); n < nearest || n == nearest && name < best {
			best, nearest = name, n
		}
	}
	return best
}

// distance is how many letters must be added, dropped or changed to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// List reads a sequence, each item of it with item. A single value stands for a list of one.
func (d *Document) List(item Reader) Reader {
	return func(n ast.Node, where string) {
		seq, ok := d.Resolve(n).(*ast.SequenceNode)
		if !ok {
			item(n, where)
			return
		}
		for i, v := range seq.Values {
			item(v, where+"["+strconv.Itoa(i)+"]")
		}
	}
}

// Scalar reads a single value as the text that stands in the file.
func (d *Document) Scalar(use func(text string) error) Reader {
	return func(n ast.Node, where string) {
		v, ok := d.Resolve(n).(ast.ScalarNode)
		if !ok {
			d.Errorf(n, where, "a single value is needed")
			return
		}
		text := v.GetToken().Value
		if l, ok := v.(*ast.LiteralNode); ok {
			text = l.Value.Value
		}
		if err := use(text); err != nil {
			d.Errorf(n, where, "%v", err)
		}
	}
}

// Value reads a single value by parse into dst.
func Value[T any](d *Document, dst *T, parse func(string) (T, error)) Reader {
	return d.Scalar(func(text string) error {
		v, err := parse(text)
		if err == nil {
			*dst = v
		}
		return err
	})
}

// Values reads a list of single values by parse onto dst.
func Values[T any](d *Document, dst *[]T, parse func(string) (T, error)) Reader {
	return d.List(d.Scalar(func(text string) error {
		v, err := parse(text)
		if err == nil {
			*dst = append(*dst, v)
		}
		return err
	}))
}

// OneOf reads one of some words.
func (d *Document) OneOf(use func(i int), words ...string) Reader {
	return d.Scalar(func(text string) error {
		i := slices.Index(words, text)
		if i < 0 {
			return fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
		}
		use(i)
		return nil
	})
}

// Items reads a list of mappings onto dst.
func Items[T any](d *Document, dst *[]T, item func(*T) Reader) Reader {
	return d.List(func(n ast.Node, where string) {
		var v T
		item(&v)(n, where)
		*dst = append(*dst, v)
	})
}

// At notes the line where a mapping begins.
func (d *Document) At(line *int, read Reader) Reader {
	return func(n ast.Node, where string) {
		*line = LineOf(d.Resolve(n))
		read(n, where)
	}
}
