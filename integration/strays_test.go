package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A stray is the first word of a comment on a declaration, where it is the name of something else.
type stray struct {
	pos  token.Pos
	word string
}

// nameLike matches a first word that looks like a name, as sentences begin with a capital. Exported names are not among
// them: they look like the names of products.
var nameLike = regexp.MustCompile(`^[a-z]\w*$`)

// straysOf returns the strays of a file's functions, methods, types, variables and constants.
func straysOf(file *ast.File) (strays []stray) {
	check := func(doc *ast.CommentGroup, names ...*ast.Ident) {
		first, _, _ := strings.Cut(strings.TrimSpace(doc.Text()), " ")
		word := strings.TrimRight(first, ",:")
		word, _, _ = strings.Cut(word, "[") // an element of the declared array
		if nameLike.MatchString(word) && !slices.ContainsFunc(names, func(id *ast.Ident) bool { return id.Name == word }) {
			strays = append(strays, stray{doc.Pos(), word})
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			check(decl.Doc, decl.Name)
		case *ast.GenDecl:
			var all []*ast.Ident
			for _, spec := range decl.Specs {
				var names []*ast.Ident
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					names = spec.Names
					check(spec.Doc, names...)
				case *ast.TypeSpec:
					names = []*ast.Ident{spec.Name}
					check(spec.Doc, names...)
				}
				all = append(all, names...)
			}
			if len(all) > 0 {
				check(decl.Doc, all...)
			}
		}
	}
	return strays
}

func TestStrays(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a

// oldName bounds it.
const newName = 1

// oldType is a type.
type newType int

const (
	// a and b are one.
	a, b = 1, 1
	// next is another.
	c = 2
)

// old returns nothing.
func (newType) renamed() {}

// A word of prose, or GitHub's name behind it, is no stray.
func f() {}

// table[i] is i.
var table []int
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range straysOf(file) {
		words = append(words, s.word)
	}
	if want := []string{"oldName", "oldType", "next", "old"}; !slices.Equal(words, want) {
		t.Errorf("strays %q, want %q", words, want)
	}
}
