package skcompress

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func pairsOf(t *testing.T, text string) *Pairs {
	t.Helper()
	c, err := suite.Parse(text)
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

// The wire form of pairs is what testdata/pairs says: these bytes are made and read, and those that are broken are refused. Files
// are as those of blocks, with the part keys before elements; of a corrupt encoding there are only bytes, and n, for how many pairs.
func TestGoldenPairs(t *testing.T) {
	parts := []string{"keys", "elements", "bytes", "delivered"}
	codectest.EachVector(t, "testdata/pairs", []string{"codec", "expect"}, parts, func(t *testing.T, v codectest.Vector) {
		p, keys, encoded := pairsOf(t, v.Header["codec"]), codectest.Integers(t, v.Lines("keys")), codectest.HexBytes(t, v.Lines("bytes"))
		elements, delivered := codectest.Floats(t, v.Lines("elements")), codectest.Floats(t, v.Lines("delivered"))
		kind, why, _ := strings.Cut(v.Header["expect"], ", ")
		switch kind {
		case "ok":
			if b, err := p.Append(nil, keys, elements); err != nil || !bytes.Equal(b, encoded) {
				t.Errorf("encoded as\n% x, %v; want\n% x", b, err, encoded)
			}
			own, values := make([]uint64, len(keys)), make([]float32, len(keys))
			if err := p.Decode(own, values, encoded); err != nil || !slices.Equal(own, keys) || !slices.EqualFunc(values, delivered, sameBits) {
				t.Errorf("decoded as\n%d\n%x, %v; want\n%d\n%x", own, values, err, keys, delivered)
			}
		case "unsuited":
			if b, err := p.Append([]byte{5}, keys, elements); !errors.Is(err, codecs.ErrUnsuited) || !strings.Contains(err.Error(), why) || len(b) != 1 {
				t.Errorf("encoded as % x, %v; want an ErrUnsuited that says %q", b, err, why)
			}
		case "corrupt":
			n, err := strconv.Atoi(v.Header["n"])
			if err != nil {
				t.Fatal(err)
			}
			own, values := make([]uint64, n), make([]float32, n)
			if err := p.Decode(own, values, encoded); !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), why) {
				t.Errorf("decoded as %d, %v, %v; want an ErrCorrupt that says %q", own, values, err, why)
			}
		default:
			t.Errorf("unknown expectation %q", kind)
		}
	})
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
