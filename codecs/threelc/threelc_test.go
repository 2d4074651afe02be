package threelc

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

func parse(text string) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	return FromArgs(a)
}

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	codec, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{}, {S: 1.9, Block: 7}, {S: 1.25, Block: 1000}, {Coder: Entropy}, {S: 1.5, Block: 999, Coder: Entropy}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) {
			if 0 < c.Block && c.Block < 100 { // too short for kernels
				codectest.Run(t, codec, parse)
				return
			}
			asmtest.Each(t, func(t *testing.T) { codectest.Run(t, codec, parse) })
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"3lc", "3lc"},
		{"3lc(s=1)", "3lc"},
		{"3lc(s=1.75)", "3lc(s=1.75)"},
		{"3lc(block=65536,s=1.9)", "3lc(s=1.9)"},
		{"3lc(block=4096)", "3lc(block=4096)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"3lc(s=2)", "3lc(s=0.99)", "3lc(s=1.99999999)", "3lc(block=0)", "3lc(block=16777217)", "3lc(q=1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{S: 2}, {S: 0.5}, {S: -1}, {Block: -1}, {Block: maxBlock + 1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
