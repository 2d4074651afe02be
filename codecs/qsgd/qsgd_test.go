package qsgd

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
	for _, c := range []Config{{}, {Bits: 2}, {Bits: 8, Block: 100, Seed: 7}, {Bits: 2, Coding: Elias}, {Norm: Max}, {Norm: Max, Bits: 8, Coding: Elias}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"qsgd": "qsgd",
		"qsgd(bits=4,block=512,norm=l2,coding=fixed,seed=1)":  "qsgd",
		"qsgd(seed=9,bits=2,coding=elias,norm=max,block=100)": "qsgd(bits=2,block=100,norm=max,coding=elias,seed=9)",
	} {
		if got, err := parse(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"qsgd(bits=3)", "qsgd(bits=16)", "qsgd(block=0)", "qsgd(block=16777217)", "qsgd(seed=0)", "qsgd(seed=2147483648)", "qsgd(norm=l1)", "qsgd(coding=huffman)", "qsgd(s=1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Bits: 1}, {Bits: 5}, {Bits: -2}, {Norm: 2}, {Coding: 2}, {Block: -1}, {Block: maxBlock + 1}, {Seed: -1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
