package parsertest

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A bad parser breaks one promise.
type bad func(b []byte) (parser.Segment, error)

func (f bad) Next(b []byte) (parser.Segment, error) { return f(b) }

func (bad) String() string        { return "bad" }
func (bad) Traits() parser.Traits { return parser.Traits{} }

func (f bad) New(parser.Conn) (parser.Parser, parser.Parser) { return f, parser.Verbatim{} }

func TestPlayFindsBrokenPromises(t *testing.T) {
	x := Exchange{{From: parser.Client, Bytes: []byte("some bytes")}}
	value := func(size, off, hold int) func(b []byte) (parser.Segment, error) {
		return func(b []byte) (parser.Segment, error) {
			return parser.Segment{Len: len(b), Tensor: tensor.Tensor{Size: size, Off: off, Hold: hold}}, nil
		}
	}
	for name, c := range map[string]struct {
		parser bad
		want   string
	}{
		"takes nothing":         {func([]byte) (parser.Segment, error) { return parser.Segment{}, nil }, "0 bytes"},
		"takes too much":        {func(b []byte) (parser.Segment, error) { return parser.Segment{Len: len(b) + 1}, nil }, "out of 10"},
		"changes its argument":  {func(b []byte) (parser.Segment, error) { b[0]++; return parser.Segment{Len: 1}, nil }, "modified"},
		"a tensor too short":    {value(9, 0, 0), "of a tensor of 9"},
		"holds too much":        {value(10, 0, 11), "hold 11"},
		"a negative offset":     {value(10, -1, 0), "negative"},
		"an offset of no value": {value(0, 3, 0), "opaque"},
	} {
		if _, err := Play(c.parser, parser.Conn{}, x, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Classes that depend on the cut show as a difference.
func TestDiffFindsWhatDependsOnTheCut(t *testing.T) {
	x := Exchange{{From: parser.Client, Bytes: []byte("some bytes")}}
	fresh := func() parser.Protocol {
		return bad(func(b []byte) (parser.Segment, error) {
			if len(b) < 4 {
				return parser.Segment{Len: len(b)}, nil
			}
			return parser.Segment{Len: 4, Tensor: tensor.Tensor{Size: 4, Hold: 4}}, nil
		})
	}
	whole, err := Play(fresh(), parser.Conn{}, x, nil)
	if err != nil {
		t.Fatal(err)
	}
	bits, err := Play(fresh(), parser.Conn{}, x, func(int) int { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	if diff := whole.Diff(bits); !strings.Contains(diff, "from the client: at byte 0") {
		t.Errorf("difference %q", diff)
	}
	if diff := whole.Diff(whole); diff != "" {
		t.Errorf("a difference to itself: %s", diff)
	}
	if diff := whole.truncate(x.Truncate(6)).Diff(whole); diff == "" {
		t.Error("no difference to a part of itself")
	}
}
