package threshold

import (
	"errors"
	"math"
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
	for _, c := range []Config{{}, {T: 1e-4, Values: tensor.Float16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"threshold", "threshold"},
		{"threshold(t=0.001,values=fp32,block=1048576)", "threshold"},
		{"threshold(t=1e-05,values=bf16)", "threshold(t=1e-05,values=bf16)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"threshold(t=0)", "threshold(t=-1)", "threshold(t=1e39)", "threshold(k=0.1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{T: -1}, {T: math.NaN()}, {T: 1e39}, {Block: -1}, {Values: tensor.Int32}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
