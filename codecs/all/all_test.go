package all

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

// Every codec is there under its name, and writes itself so.
func TestEveryNameIsACodec(t *testing.T) {
	for _, name := range Names() {
		c, err := New(name)
		if err != nil || c.String() != name {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if names := slices.Sorted(slices.Values(Names())); len(slices.Compact(names)) != len(Names()) {
		t.Errorf("%q: a name is there twice", Names())
	}
}

func TestBadTexts(t *testing.T) {
	for text, says := range map[string]string{
		"":                      "it begins with",
		"zip":                   "no codec is called zip; there are lossless",
		"lossless(level)":       "parameter 1",
		"lossless(level=best)":  "write one of balanced, fast",
		"lossless(size=3)":      "lossless has no parameter size",
		"lossless(level=fast))": "parameter 1",
	} {
		if c, err := New(text); !errors.Is(err, codecs.ErrText) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want an ErrText that says %q", text, c, err, says)
		}
	}
}

// A pair is one codec or two, and neither half may be empty.
func TestPair(t *testing.T) {
	for text, want := range map[string][2]string{"int8": {"int8"}, "3lc(s=1.75)+int4": {"3lc(s=1.75)", "int4"}} {
		if first, second, err := Pair(text); err != nil || first != want[0] || second != want[1] {
			t.Errorf("%s: %q, %q, %v", text, first, second, err)
		}
	}
	for _, text := range []string{"", "+", "int8+", "+int8"} {
		if first, second, err := Pair(text); err == nil {
			t.Errorf("%q: %q, %q and no error", text, first, second)
		}
	}
}
