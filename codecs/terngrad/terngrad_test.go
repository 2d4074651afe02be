package terngrad

import (
	"errors"
	"math"
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
	for _, c := range []Config{{}, {Clip: -1, Block: 100, Seed: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"terngrad":                              "terngrad",
		"terngrad(clip=2.5,seed=1,block=65536)": "terngrad",
		"terngrad(clip=0)":                      "terngrad(clip=0)",
		"terngrad(seed=9,clip=1)":               "terngrad(clip=1,seed=9)",
	} {
		if got, err := parse(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"terngrad(clip=-1)", "terngrad(clip=1e7)", "terngrad(clip=nan)", "terngrad(block=0)", "terngrad(block=16777217)", "terngrad(seed=0)", "terngrad(seed=2147483648)", "terngrad(s=1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Clip: math.NaN()}, {Clip: math.Inf(1)}, {Block: -1}, {Block: maxBlock + 1}, {Seed: -1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
