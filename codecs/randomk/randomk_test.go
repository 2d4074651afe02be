package randomk

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
	for _, c := range []Config{{}, {K: 0.1, Unbiased: true, Values: tensor.BFloat16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"randomk", "randomk"},
		{"randomk(k=0.01,scale=none,seed=1,values=fp32,block=1048576)", "randomk"},
		{"randomk(scale=unbiased,seed=7,values=bf16)", "randomk(scale=unbiased,seed=7,values=bf16)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"randomk(k=0)", "randomk(k=2)", "randomk(seed=0)", "randomk(scale=n)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{K: -1}, {K: 2}, {Block: -1}, {Seed: -1}, {Values: tensor.Int32}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
