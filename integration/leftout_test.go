package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// leftOut matches README.md's number of tests that go test leaves out.
var leftOut = regexp.MustCompile(`leaves out (\d+) tests`)

// TestREADMESaysHowManyAreLeftOut compares README.md's number with the tests of all packages that skip themselves by
// require.Long, be it in helpers or subtests. It may be a tenth off.
func TestREADMESaysHowManyAreLeftOut(t *testing.T) {
	count := 0
	for _, folder := range sourceFolders(t) {
		count += longTests(t, filepath.Join("..", filepath.FromSlash(folder)))
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := leftOut.FindSubmatch(text)
	if found == nil {
		t.Fatalf("README.md does not say %q", leftOut)
	}
	said, err := strconv.Atoi(string(found[1]))
	if err != nil || 10*max(said-count, count-said) > count {
		t.Errorf("README.md: go test leaves out %d tests; there are %d: write that", said, count)
	}
}

// longTests returns how many tests of a folder call require.Long, or a function of the folder's tests that does,
// however far.
func longTests(t *testing.T, folder string) (count int) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]bool{} // names that a function uses
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Body != nil {
				uses[f.Name.Name] = namesIn(f.Body)
			}
		}
	}
	long := map[string]bool{"require.Long": true}
	for again := true; again; {
		again = false
		for f, names := range uses {
			for name := range names {
				if long[name] && !long[f] {
					long[f], again = true, true
				}
			}
		}
	}
	for f := range long {
		if strings.HasPrefix(f, "Test") {
			count++
		}
	}
	return count
}

// namesIn returns the names that a function's body uses; those of another package or of a value have its name and a
// point before them.
func namesIn(body *ast.BlockStmt) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				names[x.Name+"."+n.Sel.Name] = true
				return false
			}
		case *ast.Ident:
			names[n.Name] = true
		}
		return true
	})
	return names
}
