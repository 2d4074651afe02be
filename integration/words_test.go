package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// maxVague is the number of vague words among 1,000 words of prose that a package or a page must stay below. Go's
// net/http has 0.2 times "what", golang.org/x/net/quic 0.4.
const maxVague = 2

// maxColumns is the number of columns that a line of running comment must not pass. A tab is four columns.
const maxColumns = 120

// vague matches the words that stand in place of a noun.
var vague = regexp.MustCompile(`(?i)\b(what|who|those)\b`)

// TestWords looks at the words of each package: names of functions, methods, types, variables and constants of the
// package, and of exported fields, must not contain a word that docs/glossary.md has in its column "not", except in
// tests; nothing, not even a local variable of a test, is called most or least; a comment on a declaration that begins
// with a name begins with the declared one; no line of a comment is wider than 120 columns; and comments, in tests as
// well, must name the things that they speak of. For one package:
//
//	go test ./integration -v -run 'TestWords/proxy/tunnel'
func TestWords(t *testing.T) {
	banned := bannedWords(t)
	for _, folder := range sourceFolders(t) {
		t.Run(folder, func(t *testing.T) {
			prose := readFolder(t, folder)
			for _, name := range prose.names {
				for _, b := range banned {
					if containsWords(camelWords(name.text), b.words) {
						t.Errorf("%s: %s has %q in its name: docs/glossary.md says %s", name.where, name.text, b.text, b.instead)
					}
				}
			}
			for _, name := range prose.bounds {
				t.Errorf("%s: %s: docs/glossary.md says limit, minimum or maximum; a value that was seen is the largest or the smallest", name.where, name.text)
			}
			for _, name := range prose.strays {
				t.Errorf("%s: the comment begins with %s, which is not the name that it stands at: begin with the name, or with a capital", name.where, name.text)
			}
			for _, line := range prose.wide {
				t.Errorf("%s: the line ends behind column %d: wrap the comment: %s", line.where, maxColumns, line.text)
			}
			prose.check(t.Errorf)
		})
	}
}

// maxCell is the number of words in a cell of a page's tables: longer explanations stand below the table.
const maxCell = 25

// TestPageWords counts vague words in the pages of all folders, and words in the cells of their tables.
func TestPageWords(t *testing.T) {
	for _, name := range sourceFiles(t, ".md") {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			var prose prose
			code := false
			for i, line := range strings.Split(string(text), "\n") {
				if strings.HasPrefix(strings.TrimSpace(line), "```") {
					code = !code
				} else if !code {
					prose.add(fmt.Sprintf("%s:%d", name, i+1), line)
				}
				if !strings.HasPrefix(strings.TrimSpace(line), "|") {
					continue
				}
				for _, cell := range strings.Split(line, "|") {
					if n := len(strings.Fields(cell)); n > maxCell {
						t.Errorf("%s:%d: a cell of %d words: at most %d", name, i+1, n, maxCell)
					}
				}
			}
			t.Logf("%d words, %.1f vague ones in 1,000", prose.words, prose.rate())
			prose.check(t.Errorf)
		})
	}
}

// TestTreeWords counts vague words in all packages. With -v it prints the count of every package.
func TestTreeWords(t *testing.T) {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "words\tvague\tin 1,000\t  package\n")
	var all prose
	for _, folder := range sourceFolders(t) {
		p := readFolder(t, folder)
		fmt.Fprintf(w, "%d\t%d\t%.1f\t  %s\n", p.words, len(p.vague), p.rate(), folder)
		all.words += p.words
		all.vague = append(all.vague, p.vague...)
	}
	fmt.Fprintf(w, "%d\t%d\t%.1f\t  %s\n", all.words, len(all.vague), all.rate(), "all")
	w.Flush()
	t.Logf("\n%s", &table)
	if all.words > 0 && all.rate() >= maxVague {
		t.Errorf("%.1f vague words among 1,000 words of comments: must stay below %d", all.rate(), maxVague)
	}
}

func TestCountingWords(t *testing.T) {
	var p prose
	p.add("here", `What the peer sends to those who ask, but not "what" in quotes, nor `+"`who`"+`; whatever and whose are other words. 1 2`)
	if len(p.vague) != 3 || p.words != 19 {
		t.Errorf("%d vague words of %d, want 3 of 19", len(p.vague), p.words)
	}
	long := "// " + strings.Repeat("word ", 23) + "w" // 119 columns
	if isWide("", long) || !isWide("", long+"or") || !isWide("\t", long) || isWide("", "//go:generate "+long) || isWide("x := 1 ", long) {
		t.Error("lines of comments that end behind column 120 are not the ones that are found")
	}
	for name, want := range map[string]bool{"PayAll": true, "repaid": false, "HTTPPay": true, "Payload": false, "pay2": true} {
		if containsWords(camelWords(name), []string{"pay"}) != want {
			t.Errorf("pay in %s: want %t", name, want)
		}
	}
	if !containsWords(camelWords("DirectTakeRest"), camelWords("takeRest")) || containsWords(camelWords("TakeTheRest"), camelWords("takeRest")) {
		t.Error("takeRest is not found in its place")
	}
}

// prose is the text of a package's comments or of a page, counted, and the names that a package declares.
type prose struct {
	words  int
	vague  []found // each vague word with its line
	names  []found
	bounds []found // most and least, wherever an identifier is one of them
	wide   []found // lines of comments, without tables and code, that are too long to read
	strays []found // first words of comments on declarations that look like a name and are not the declared one
}

// found is a word or a line and its place, as FILE:LINE.
type found struct{ where, text string }

// quoted matches text in quotes, which is not ours, and code.
var quoted = regexp.MustCompile("\"[^\"]*\"|“[^”]*”|`[^`]*`")

// add counts the words of one line. A word has a letter.
func (p *prose) add(where, line string) {
	line = quoted.ReplaceAllString(strings.TrimSpace(line), " ")
	for _, word := range strings.Fields(line) {
		if strings.ContainsFunc(word, unicode.IsLetter) {
			p.words++
		}
	}
	for range vague.FindAllString(line, -1) {
		p.vague = append(p.vague, found{where, line})
	}
}

// rate returns the number of vague words among 1,000 words.
func (p *prose) rate() float64 { return 1000 * float64(len(p.vague)) / max(float64(p.words), 1) }

// check reports the vague words if there are too many: in fewer than 500 words, one is too many.
func (p *prose) check(report func(format string, args ...any)) {
	if p.rate() < maxVague {
		return
	}
	var list strings.Builder
	for _, v := range p.vague {
		fmt.Fprintf(&list, "\n\t%s: %s", v.where, v.text)
	}
	report("%.1f vague words among 1,000, must stay below %d: name the thing instead%s", p.rate(), maxVague, &list)
}

// A bannedWord is one that the glossary does not want in names.
type bannedWord struct {
	text    string
	words   []string // in lower case
	instead string   // the glossary's term
}

// bannedWords reads the tables of docs/glossary.md: the first column is the term, the last one the words to avoid.
func bannedWords(t *testing.T) (banned []bannedWord) {
	text, err := os.ReadFile("../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	column := -1 // of the words to avoid in the table that is being read; -1: outside such a table
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		last := len(cells) - 1
		if strings.TrimSpace(cells[last]) == "not" {
			column = last
			continue
		}
		if !strings.HasPrefix(line, "|") {
			column = -1
		}
		if column < 0 || strings.HasPrefix(line, "|--") {
			continue
		}
		if last != column {
			t.Fatalf("docs/glossary.md: %q has %d columns, want %d", line, last+1, column+1)
		}
		for _, word := range strings.Split(cells[last], ",") {
			if word = strings.TrimSpace(word); word != "" {
				banned = append(banned, bannedWord{word, camelWords(word), strings.TrimSpace(cells[0])})
			}
		}
	}
	if len(banned) < 20 {
		t.Fatalf("docs/glossary.md has only %d words to avoid: was it read right?", len(banned))
	}
	return banned
}

var sourceExtensions = []string{".go", ".c", ".h"}

// sourceFolders returns all folders with Go or C files, by their paths in the repository.
func sourceFolders(t *testing.T) (folders []string) {
	for _, name := range sourceFiles(t, sourceExtensions...) {
		folders = append(folders, path.Dir(name))
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// sourceFiles returns all files with one of the extensions, by their paths in the repository. Test data and folders
// whose names begin with a dot or an underscore are left out.
func sourceFiles(t *testing.T, extensions ...string) (files []string) {
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && file != ".." && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")):
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains(extensions, filepath.Ext(name)):
			files = append(files, strings.TrimPrefix(filepath.ToSlash(file), "../"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// folders holds the folders that were read already.
var folders = map[string]*prose{}

// readFolder reads the comments of a folder's files, and the names declared in files that are no tests. Generated files
// are left out.
func readFolder(t *testing.T, folder string) *prose {
	if p := folders[folder]; p != nil {
		return p
	}
	p := new(prose)
	entries, err := os.ReadDir(filepath.Join("..", filepath.FromSlash(folder)))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		path := folder + "/" + entry.Name()
		if !slices.Contains(sourceExtensions, filepath.Ext(path)) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(path) != ".go" {
			p.readC(path, string(text))
		} else if err := p.readGo(path, text); err != nil {
			t.Fatal(err)
		}
	}
	folders[folder] = p
	return p
}

// readGo adds a Go file.
func (p *prose) readGo(path string, text []byte) error {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			at := positions.Position(comment.Pos())
			p.addComment(path, at.Line, comment.Text)
			if indent := text[at.Offset-at.Column+1 : at.Offset]; isWide(string(indent), comment.Text) {
				p.wide = append(p.wide, found{fmt.Sprintf("%s:%d", path, at.Line), comment.Text})
			}
		}
	}
	at := func(id *ast.Ident) found {
		return found{fmt.Sprintf("%s:%d", path, positions.Position(id.Pos()).Line), id.Name}
	}
	p.bounds = append(p.bounds, boundsOf(file, at)...)
	for _, stray := range straysOf(file) {
		p.strays = append(p.strays, found{fmt.Sprintf("%s:%d", path, positions.Position(stray.pos).Line), stray.word})
	}
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	name := func(id *ast.Ident) { p.names = append(p.names, at(id)) }
	p.names = append(p.names, found{path, file.Name.Name})
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name(decl.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						name(id)
					}
				case *ast.TypeSpec:
					name(spec.Name)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var list *ast.FieldList
		switch n := n.(type) {
		case *ast.StructType:
			list = n.Fields
		case *ast.InterfaceType:
			list = n.Methods
		default:
			return true
		}
		for _, field := range list.List {
			for _, id := range field.Names {
				if id.IsExported() {
					name(id)
				}
			}
		}
		return true
	})
	return nil
}

// isWide reports whether a line with nothing but a comment after indent is too long. Directives, tables and code may be
// long, and so may a line with an address, which cannot be broken.
func isWide(indent, comment string) bool {
	return strings.Trim(indent, "\t") == "" && strings.HasPrefix(comment, "// ") && !strings.Contains(comment, "://") &&
		4*len(indent)+utf8.RuneCountInString(comment) > maxColumns
}

// boundsOf returns the identifiers of a file that are called most or least. at says where one stands.
func boundsOf(file *ast.File, at func(*ast.Ident) found) (bounds []found) {
	ast.Inspect(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && (id.Name == "most" || id.Name == "least") {
			bounds = append(bounds, at(id))
		}
		return true
	})
	return bounds
}

// cComment matches a comment of C, or a string, in which there is none.
var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"`)

// readC adds a C file.
func (p *prose) readC(path, text string) {
	for _, at := range cComment.FindAllStringIndex(text, -1) {
		if comment := text[at[0]:at[1]]; comment[0] == '/' {
			p.addComment(path, 1+strings.Count(text[:at[0]], "\n"), comment)
		}
	}
}

// addComment adds a comment that begins at a line, but for directives and indented lines, which are code.
func (p *prose) addComment(path string, line int, comment string) {
	if strings.HasPrefix(comment, "//") && len(comment) > 2 && comment[2] != ' ' {
		return
	}
	comment = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(comment, "/*"), "//"), "*/")
	for i, text := range strings.Split(comment, "\n") {
		if text = strings.TrimPrefix(strings.TrimPrefix(text, " *"), "\t *"); !strings.HasPrefix(text, "\t") {
			p.add(fmt.Sprintf("%s:%d", path, line+i), text)
		}
	}
}

// camelWords splits a name into its words, in lower case: "HTTPPath2" has "http", "path".
func camelWords(name string) (words []string) {
	runes, begin := []rune(name), 0
	end := func(i int) {
		if word := strings.TrimFunc(string(runes[begin:i]), func(r rune) bool { return !unicode.IsLetter(r) }); word != "" {
			words = append(words, strings.ToLower(word))
		}
		begin = i
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end(i)
		case unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end(i)
		}
	}
	end(len(runes))
	return words
}

// containsWords reports whether part lies in words, side by side.
func containsWords(words, part []string) bool {
	for i := range words {
		if len(words)-i >= len(part) && slices.Equal(words[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
