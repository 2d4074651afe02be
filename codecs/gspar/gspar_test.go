package gspar

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
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
	for _, c := range []Config{
		{Kappa: 0.5, Seed: 3, Block: 1000}, {Eps: 1, Block: 70}, {Uniform: true},
	} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"gspar", "gspar"},
		{"gspar(kappa=0.01,seed=1,block=1048576)", "gspar"},
		{"gspar(kappa=0.05)", "gspar(kappa=0.05)"},
		{"gspar(eps=1)", "gspar(eps=1)"},
		{"gspar(block=4096,seed=7,eps=0.01)", "gspar(eps=0.01,seed=7,block=4096)"},
		{"unisp", "unisp"},
		{"unisp(kappa=0.5)", "unisp(kappa=0.5)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"gspar(kappa=0)", "gspar(kappa=1.1)", "gspar(eps=0)", "gspar(eps=1,kappa=0.1)", "unisp(eps=1)", "gspar(seed=0)", "gspar(block=0)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Kappa: -1}, {Kappa: 2}, {Eps: -1}, {Eps: 1e10}, {Eps: 1, Kappa: 1}, {Eps: 1, Uniform: true}, {Seed: -1}, {Block: -1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
