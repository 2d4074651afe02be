package block

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
	for _, c := range []Config{{Bits: 8}, {Bits: 4}, {Bits: 8, Block: 1}, {Bits: 4, Block: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) {
			if c.Block > 0 { // too short for kernels
				codectest.Run(t, codec, parse)
				return
			}
			asmtest.Each(t, func(t *testing.T) { codectest.Run(t, codec, parse) })
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"int8", "int8"},
		{"int8(block=1024)", "int8"},
		{"int8(block=256)", "int8(block=256)"},
		{"int4", "int4"},
		{"int4(block=256)", "int4"},
		{"int4(block=1024)", "int4(block=1024)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"int8(block=0)", "int4(block=1048577)", "int8(bits=4)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{}, {Bits: 2}, {Bits: 8, Block: -1}, {Bits: 4, Block: maxBlock + 1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
