package codectest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// Golden checks a value codec against the files testdata/*.txt, one scenario each: lines "name: value", which give the
// source of the numbers ("# from"), the codec, the dtype and the expected result ("ok"; "unsuited"; "corrupt, " and a
// part of the error), and then the steps of one block in turn, each in parts that begin with a line of their name:
//
//	elements:   the block: numbers in C's hex notation, or NaN and Inf; "x N" after one repeats it
//	bytes:      its encoding, in hex
//	delivered:  the values that it decodes to, if they are not elements
//	residual:   the residual afterwards; encoders have feedback if the file has this part
//
// Of a corrupt encoding there are only bytes, and n, a line that says for how many elements.
func Golden(t *testing.T, parse func(string) (codecs.Codec, error)) {
	parts := []string{"elements", "bytes", "delivered", "residual"}
	EachVector(t, "testdata", []string{"codec", "dtype", "expect"}, parts, func(t *testing.T, v Vector) {
		s := newScenario(v)
		c, err := parse(s.header["codec"])
		if err != nil {
			t.Fatal(err)
		}
		d, ok := tensor.ParseDType(s.header["dtype"])
		if !ok {
			t.Fatalf("unknown dtype %q", s.header["dtype"])
		}
		if why, ok := strings.CutPrefix(s.header["expect"], "corrupt, "); ok {
			s.corrupt(t, c, d, why)
		} else {
			s.encode(t, c, d)
		}
	})
}

// A scenario is a file of testdata.
type scenario struct {
	header map[string]string
	steps  []map[string][]string // lines of each part
}

func newScenario(v Vector) scenario {
	s := scenario{header: v.Header}
	for _, p := range v.Parts {
		if last := len(s.steps) - 1; last < 0 || s.steps[last][p.Name] != nil || p.Name == "elements" {
			s.steps = append(s.steps, map[string][]string{})
		}
		s.steps[len(s.steps)-1][p.Name] = append([]string{}, p.Lines...) // also of no lines, it is there
	}
	return s
}

func (s scenario) encode(t *testing.T, c codecs.Codec, d tensor.DType) {
	n := len(Floats(t, s.steps[0]["elements"]))
	residual := make([]float32, n)
	enc, err := c.NewEncoder(d, n)
	if s.steps[0]["residual"] != nil {
		enc, err = feedback.NewEncoder(c, d, residual)
	}
	if err != nil {
		t.Fatal(err)
	}
	dec, err := c.NewDecoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range s.steps {
		block := make([]byte, n*d.Size())
		tensor.FromFloat32(block, Floats(t, step["elements"]), d)
		got, err := enc.Append(nil, block)
		if s.header["expect"] == "unsuited" && i == len(s.steps)-1 {
			if !errors.Is(err, codecs.ErrUnsuited) {
				t.Errorf("step %d: encoded as %x, %v; want ErrUnsuited", i, got, err)
			}
			s.sameResidual(t, i, residual)
			return
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if want := HexBytes(t, step["bytes"]); !bytes.Equal(got, want) {
			t.Errorf("step %d: encoded as\n%x\nwant\n%x", i, got, want)
		}
		delivered := block
		if step["delivered"] != nil {
			delivered = make([]byte, len(block))
			tensor.FromFloat32(delivered, Floats(t, step["delivered"]), d)
		}
		back := make([]byte, len(block))
		if err := dec.Decode(back, HexBytes(t, step["bytes"])); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if !bytes.Equal(back, delivered) {
			t.Errorf("step %d: decoded as\n%x\nwant\n%x", i, back, delivered)
		}
		s.sameResidual(t, i, residual)
	}
}

func (s scenario) sameResidual(t *testing.T, step int, got []float32) {
	t.Helper()
	if s.steps[step]["residual"] == nil {
		return
	}
	want := Floats(t, s.steps[step]["residual"])
	if len(got) != len(want) {
		t.Fatalf("step %d: %d residuals for %d elements", step, len(want), len(got))
	}
	if i := differ(got, want); i >= 0 {
		t.Errorf("step %d: residual %d is %x, want %x", step, i, got[i], want[i])
	}
}

func (s scenario) corrupt(t *testing.T, c codecs.Codec, d tensor.DType, why string) {
	n, err := strconv.Atoi(s.header["n"])
	if err != nil {
		t.Fatal(err)
	}
	dec, err := c.NewDecoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	err = dec.Decode(make([]byte, n*d.Size()), HexBytes(t, s.steps[0]["bytes"]))
	if !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v; want an ErrCorrupt that says %q", err, why)
	}
}
