package stochastic3

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
	for _, c := range []Config{{}, {Block: 100, Seed: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"stochastic3":                     "stochastic3",
		"stochastic3(seed=1,block=65536)": "stochastic3",
		"stochastic3(seed=9,block=4096)":  "stochastic3(block=4096,seed=9)",
	} {
		if got, err := parse(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"stochastic3(block=0)", "stochastic3(block=16777217)", "stochastic3(seed=0)", "stochastic3(seed=2147483648)", "stochastic3(s=1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Block: -1}, {Block: maxBlock + 1}, {Seed: -1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
