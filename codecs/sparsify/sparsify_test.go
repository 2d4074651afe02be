package sparsify

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
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
	for _, c := range []Config{{}, {K: 0.05, Values: tensor.BFloat16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"sparsify", "sparsify"},
		{"sparsify(k=0.25,values=fp32,block=1048576)", "sparsify"},
		{"sparsify(k=0.05,values=bf16,block=9)", "sparsify(k=0.05,values=bf16,block=9)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"sparsify(k=0)", "sparsify(k=2)", "sparsify(values=int8)", "sparsify(bitmap=no)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{K: -1}, {K: 2}, {Block: -1}, {Values: tensor.Int32}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
