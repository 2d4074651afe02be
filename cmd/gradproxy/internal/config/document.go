package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A document is a YAML file that is being read. Its problems add up, so that all are reported at once.
type document struct {
	file     string
	problems Problems
	anchors  map[string]ast.Node
}

// A reader takes a value out of a node. where is the node's place, as in "peers[0].name".
type reader func(n ast.Node, where string)

// parse returns the root of the document, or nil.
func (d *document) parse(text []byte) ast.Node {
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, message := 0, err.Error()
		if y := yaml.Error(nil); errors.As(err, &y) {
			line, message = y.GetToken().Position.Line, y.GetMessage()
		}
		d.problems = append(d.problems, Problem{File: d.file, Line: line, Message: "not YAML: " + oneLine(message)})
		return nil
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		d.problems = append(d.problems, Problem{File: d.file, Message: "one YAML document is needed: begin with site: NAME"})
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
			d.errorf(n, "", "nothing is anchored as &%s", oneLine(name))
			return nil
		}
	}
	return f.Docs[0].Body
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken().Position.Line
	}
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// errorf notes an error at n.
func (d *document) errorf(n ast.Node, where, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: lineOf(n), Where: where, Message: fmt.Sprintf(format, args...)})
}

// resolve sees through anchors, aliases and tags.
func (d *document) resolve(n ast.Node) ast.Node {
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

// object reads a mapping whose keys are exactly those of fields. An unknown key is an error.
func (d *document) object(fields map[string]reader) reader {
	return func(n ast.Node, where string) {
		var pairs []*ast.MappingValueNode
		switch v := d.resolve(n).(type) {
		case *ast.MappingNode:
			pairs = v.Values
		case *ast.MappingValueNode:
			pairs = []*ast.MappingValueNode{v}
		default:
			d.errorf(n, where, "a mapping is needed: %s", keysOf(fields))
			return
		}
		for _, p := range pairs {
			key := p.Key.GetToken().Value
			place := strings.TrimPrefix(where+"."+key, ".")
			read, ok := fields[key]
			switch {
			case ok && isNull(p.Value):
				d.errorf(p.Key, place, "there is no value: write one, or leave the key out")
			case ok:
				read(p.Value, place)
			default:
				d.errorf(p.Key, place, "unknown key: %s", suggest(key, fields))
			}
		}
	}
}

func isNull(n ast.Node) bool { _, ok := n.(*ast.NullNode); return ok || n == nil }

// keysOf lists the keys that there are.
func keysOf(fields map[string]reader) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return "its keys are " + strings.Join(names, ", ")
}

// suggest names the key that was meant, if one is close, or else all.
func suggest(key string, fields map[string]reader) string {
	best, least := "", 3 // more than two letters off is another word
	for name := range fields {
		if n := distance(key, name); n < least || n == least && name < best {
			best, least = name, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return keysOf(fields)
}

// distance is how many letters must be added, dropped or changed to turn a into b (Levenshtein).
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

// list reads a sequence, each item of it with item. A single value stands for a list of one.
func (d *document) list(item reader) reader {
	return func(n ast.Node, where string) {
		seq, ok := d.resolve(n).(*ast.SequenceNode)
		if !ok {
			item(n, where)
			return
		}
		for i, v := range seq.Values {
			item(v, where+"["+strconv.Itoa(i)+"]")
		}
	}
}

// scalar reads a single value as the text that stands in the file.
func (d *document) scalar(use func(text string) error) reader {
	return func(n ast.Node, where string) {
		v, ok := d.resolve(n).(ast.ScalarNode)
		if !ok {
			d.errorf(n, where, "a single value is needed")
			return
		}
		text := v.GetToken().Value
		if l, ok := v.(*ast.LiteralNode); ok {
			text = l.Value.Value
		}
		if err := use(text); err != nil {
			d.errorf(n, where, "%v", err)
		}
	}
}

// value reads a single value by parse into dst.
func value[T any](d *document, dst *T, parse func(string) (T, error)) reader {
	return d.scalar(func(text string) error {
		v, err := parse(text)
		if err == nil {
			*dst = v
		}
		return err
	})
}

// values reads a list of single values by parse onto dst.
func values[T any](d *document, dst *[]T, parse func(string) (T, error)) reader {
	return d.list(d.scalar(func(text string) error {
		v, err := parse(text)
		if err == nil {
			*dst = append(*dst, v)
		}
		return err
	}))
}

// oneOf reads one of some words.
func (d *document) oneOf(use func(i int), words ...string) reader {
	return d.scalar(func(text string) error {
		i := slices.Index(words, text)
		if i < 0 {
			return fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
		}
		use(i)
		return nil
	})
}
