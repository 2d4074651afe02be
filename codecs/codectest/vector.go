package codectest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Vector is a file of golden vectors: lines "name: value", and parts, which begin with a line of their name.
type Vector struct {
	Header map[string]string
	Parts  []VectorPart // in the file's order
}

// A VectorPart is a name and the lines that follow it.
type VectorPart struct {
	Name  string
	Lines []string
}

// EachVector calls f in a subtest with each file *.txt of a directory, which must have one at least. Each file must
// give the source of its numbers ("# from") and all of the header, and must have no other parts than these; a part's
// name may go on after a space.
func EachVector(t *testing.T, dir string, header, parts []string, f func(t *testing.T, v Vector)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden vectors in %s: %v", dir, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			v := readVector(t, path)
			for _, name := range append([]string{"# from"}, header...) {
				if v.Header[name] == "" {
					t.Fatalf("%s: the line %q is missing", path, name)
				}
			}
			for _, p := range v.Parts {
				if !slices.ContainsFunc(parts, func(name string) bool { return p.Name == name || strings.HasPrefix(p.Name, name+" ") }) {
					t.Fatalf("%s: unknown part %q", path, p.Name)
				}
			}
			f(t, v)
		})
	}
}

func readVector(t *testing.T, path string) Vector {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := Vector{Header: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		name, value, named := strings.Cut(line, ":")
		switch last := len(v.Parts) - 1; {
		case line == "":
		case named && value == "":
			v.Parts = append(v.Parts, VectorPart{Name: name})
		case named:
			v.Header[name] = strings.TrimSpace(value)
		case last >= 0:
			v.Parts[last].Lines = append(v.Parts[last].Lines, line)
		default:
			t.Fatalf("%s: unknown line %q", path, line)
		}
	}
	return v
}

// Lines returns the lines of all parts of a name.
func (v Vector) Lines(part string) (lines []string) {
	for _, p := range v.Parts {
		if p.Name == part {
			lines = append(lines, p.Lines...)
		}
	}
	return lines
}

// Floats returns the numbers of a part: in C's hex notation, or NaN and Inf, one a line; "x N" after one repeats it.
func Floats(t *testing.T, lines []string) []float32 {
	t.Helper()
	var all []float32
	for _, line := range lines {
		number, times, repeated := strings.Cut(line, " x ")
		x, err := strconv.ParseFloat(number, 32)
		n := 1
		if err == nil && repeated {
			n, err = strconv.Atoi(times)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Repeat([]float32{float32(x)}, n)...)
	}
	return all
}

// HexBytes returns the bytes of a part, which are in hex.
func HexBytes(t *testing.T, lines []string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Integers returns the integers of a part, in decimal, one a line; negative ones in two's complement.
func Integers(t *testing.T, lines []string) []uint64 {
	t.Helper()
	var all []uint64
	for _, line := range lines {
		key, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			var negative int64
			negative, err = strconv.ParseInt(line, 10, 64)
			key = uint64(negative)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}
