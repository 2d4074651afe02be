package qsgd

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func parse(text string) (codecs.Codec, error) { return codectest.Parse(text, FromArgs) }

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	return codectest.New(t, New, c)
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{}, {Bits: 2}, {Bits: 8, Block: 100, Seed: 7}, {Bits: 2, Coding: Elias}, {Norm: Max}, {Norm: Max, Bits: 8, Coding: Elias}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"qsgd": "qsgd",
		"qsgd(bits=4,block=512,norm=l2,coding=fixed,seed=1)":  "qsgd",
		"qsgd(seed=9,bits=2,coding=elias,norm=max,block=100)": "qsgd(bits=2,block=100,norm=max,coding=elias,seed=9)",
	}, "qsgd(bits=3)", "qsgd(bits=16)", "qsgd(block=0)", "qsgd(block=16777217)", "qsgd(seed=0)",
		"qsgd(seed=2147483648)", "qsgd(norm=l1)", "qsgd(coding=huffman)", "qsgd(s=1)")
	codectest.Refused(t, New, Config{Bits: 1}, Config{Bits: 5}, Config{Bits: -2}, Config{Norm: 2}, Config{Coding: 2}, Config{Block: -1}, Config{Block: maxBlock + 1}, Config{Seed: -1})
}
