package skcompress

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func TestGoldenVectors(t *testing.T) { codectest.Golden(t, parse) }

// The vectors are what an implementation makes that shares nothing with this package but its comment.
func TestGoldenVectorsElsewhere(t *testing.T) { codectest.Elsewhere(t) }

// A pairsVector is a file of testdata/pairs, one scenario each: lines "name: value" (where the numbers are from, the codec, what
// to expect: "ok"; "unsuited, " or "corrupt, " and what the error says), and then parts that begin with a line of their name:
//
//	keys:       in decimal, one a line
//	elements:   as many values, in C's hex notation, or NaN and Inf; "x N" after one repeats it
//	bytes:      their encoding, in hex
//	delivered:  the values that this decodes to
//
// Of a corrupt encoding there are only bytes, and n, a line that says for how many pairs.
type pairsVector struct {
	header              map[string]string
	keys                []uint64
	elements, delivered []float32
	bytes               []byte
}

func readPairsVector(t *testing.T, path string) pairsVector {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := pairsVector{header: map[string]string{}}
	part := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		name, value, isHeader := strings.Cut(line, ":")
		var err error
		switch {
		case isHeader && value == "":
			part = name
		case isHeader:
			v.header[name] = strings.TrimSpace(value)
		case part == "keys":
			var key uint64
			key, err = strconv.ParseUint(line, 10, 64)
			v.keys = append(v.keys, key)
		case part == "elements":
			v.elements, err = appendFloats(v.elements, line)
		case part == "delivered":
			v.delivered, err = appendFloats(v.delivered, line)
		case part == "bytes":
			b, err = hex.DecodeString(strings.ReplaceAll(line, " ", ""))
			v.bytes = append(v.bytes, b...)
		default:
			t.Fatalf("%s: unknown line %q", path, line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if v.header["# from"] == "" || v.header["codec"] == "" || v.header["expect"] == "" {
		t.Fatalf("%s: a header line is missing", path)
	}
	return v
}

// appendFloats appends a number, as often as the line says.
func appendFloats(dst []float32, line string) ([]float32, error) {
	number, times, repeated := strings.Cut(line, " x ")
	x, err := strconv.ParseFloat(number, 32)
	n := 1
	if err == nil && repeated {
		n, err = strconv.Atoi(times)
	}
	return append(dst, slices.Repeat([]float32{float32(x)}, max(n, 0))...), err
}

func (v pairsVector) pairs(t *testing.T) *Pairs {
	t.Helper()
	c, err := parse(v.header["codec"])
	if err != nil {
		t.Fatal(err)
	}
	m, _ := codecs.MethodOf(c)
	p, err := NewPairs(m.(method).Config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The wire form of pairs is what testdata/pairs says: these bytes are made and read, and those that are broken are refused.
func TestGoldenPairs(t *testing.T) {
	paths, err := filepath.Glob("testdata/pairs/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden vectors in testdata/pairs: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			v := readPairsVector(t, path)
			p := v.pairs(t)
			kind, why, _ := strings.Cut(v.header["expect"], ", ")
			switch kind {
			case "ok":
				if b, err := p.Append(nil, v.keys, v.elements); err != nil || !bytes.Equal(b, v.bytes) {
					t.Errorf("encoded as\n% x, %v; want\n% x", b, err, v.bytes)
				}
				own, values := make([]uint64, len(v.keys)), make([]float32, len(v.keys))
				if err := p.Decode(own, values, v.bytes); err != nil || !slices.Equal(own, v.keys) || !slices.EqualFunc(values, v.delivered, sameBits) {
					t.Errorf("decoded as\n%d\n%x, %v; want\n%d\n%x", own, values, err, v.keys, v.delivered)
				}
			case "unsuited":
				if b, err := p.Append([]byte{5}, v.keys, v.elements); !errors.Is(err, codecs.ErrUnsuited) || !strings.Contains(err.Error(), why) || len(b) != 1 {
					t.Errorf("encoded as % x, %v; want an ErrUnsuited that says %q", b, err, why)
				}
			case "corrupt":
				n, err := strconv.Atoi(v.header["n"])
				if err != nil {
					t.Fatal(err)
				}
				own, values := make([]uint64, n), make([]float32, n)
				if err := p.Decode(own, values, v.bytes); !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), why) {
					t.Errorf("decoded as %d, %v, %v; want an ErrCorrupt that says %q", own, values, err, why)
				}
			default:
				t.Errorf("unknown expectation %q", kind)
			}
		})
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
