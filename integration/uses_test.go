package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// uses tell of each file of a package which other files declare names that it uses, with one of the names.
type uses map[string]map[string]string

// A source has the type-checked packages of one system. Each package is checked once, many without the bodies of their
// functions.
type source struct {
	files    *token.FileSet
	listed   map[string]listed
	bodies   func(path string) bool    // whether to check the ones of a package
	packages map[string]*types.Package // by import path
	names    map[string]uses           // by room: uses of names of package scope
	methods  map[string]uses           // by room: the same, and calls of methods
}

// A listed package is as go list describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // from paths in files to paths of vendored packages
}

// newSource lists packages, and all that they import, as they are built for a system, without cgo.
func newSource(t *testing.T, system, processor string, list ...string) *source {
	t.Helper()
	s := &source{files: token.NewFileSet(), listed: map[string]listed{}, packages: map[string]*types.Package{"unsafe": types.Unsafe}, names: map[string]uses{}, methods: map[string]uses{}}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap"}, list...)...)
	cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list on %s, %s: %v", system, processor, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return s
		} else if err != nil {
			t.Fatal(err)
		}
		s.listed[p.ImportPath] = p
	}
}

// newRooms checks all rooms, with the bodies of their functions.
func newRooms(t *testing.T, system string) *source {
	t.Helper()
	var paths []string
	for _, room := range rooms {
		paths = append(paths, module+room)
	}
	s := newSource(t, system, "amd64", paths...)
	s.bodies = func(path string) bool { return slices.Contains(paths, path) }
	for _, path := range paths {
		if _, err := s.check(path); err != nil {
			t.Fatalf("%s on %s: %v", path, system, err)
		}
	}
	return s
}

// An importer finds the packages that a package imports.
type importer struct {
	*source
	by listed
}

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) {
	if vendored := i.by.ImportMap[path]; vendored != "" {
		path = vendored
	}
	return i.check(path)
}

// check returns a package, and takes note of the uses of a room's files.
func (s *source) check(path string) (*types.Package, error) {
	if p := s.packages[path]; p != nil {
		return p, nil
	}
	p, ok := s.listed[path]
	if !ok {
		return nil, fmt.Errorf("%s is not listed", path)
	}
	room, isRoom := strings.CutPrefix(path, module)
	isRoom = isRoom && slices.Contains(rooms, room)
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config := types.Config{IgnoreFuncBodies: !s.bodies(path), Importer: importer{s, p}, Sizes: types.SizesFor("gc", "amd64")}
	info := &types.Info{}
	if isRoom {
		info.Uses = map[*ast.Ident]types.Object{}
	}
	checked, err := config.Check(path, s.files, files, info)
	if err != nil {
		return nil, err
	}
	s.packages[path] = checked
	if isRoom {
		s.note(room, p.GoFiles, checked, info)
	}
	return checked, nil
}

// note takes note of the uses of a room's files.
func (s *source) note(room string, files []string, checked *types.Package, info *types.Info) {
	names, methods := uses{}, uses{}
	for _, name := range files {
		names[name], methods[name] = map[string]string{}, map[string]string{}
	}
	fileOf := func(at token.Pos) string { return filepath.Base(s.files.File(at).Name()) }
	for ident, used := range info.Uses {
		if used.Pkg() != checked {
			continue
		}
		by := fileOf(ident.Pos())
		use := func(used uses, o types.Object) {
			if in := fileOf(o.Pos()); in != by {
				used[by][in] = o.Name()
			}
		}
		if used.Parent() == checked.Scope() {
			use(names, used)
			use(methods, used)
		}
		if f, ok := used.(*types.Func); ok && f.Signature().Recv() != nil {
			use(methods, f)
			for _, m := range implementations(f) {
				use(methods, m)
			}
		}
	}
	s.names[room], s.methods[room] = names, methods
}

// implementations returns the methods of its package's types that a call of f, an interface's method, may run. An
// interface without a name, which asks values of other packages for an ability, does not count, nor does one that is no
// value's type, but bounds the elements of a generic container.
func implementations(f *types.Func) (methods []*types.Func) {
	named, ok := f.Signature().Recv().Type().(*types.Named)
	if !ok {
		return nil
	}
	called, ok := named.Underlying().(*types.Interface)
	if !ok || !called.IsMethodSet() {
		return nil
	}
	scope := f.Pkg().Scope()
	for _, name := range scope.Names() {
		declared, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || types.IsInterface(declared.Type()) {
			continue
		}
		if t := types.NewPointer(declared.Type()); types.Implements(t, called) {
			if m, _, _ := types.LookupFieldOrMethod(t, false, f.Pkg(), f.Name()); m != nil && m.Pkg() == f.Pkg() {
				methods = append(methods, m.(*types.Func))
			}
		}
	}
	return methods
}
