package terngrad

import (
	"math"
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
	for _, c := range []Config{{}, {Clip: -1, Block: 100, Seed: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"terngrad":                              "terngrad",
		"terngrad(clip=2.5,seed=1,block=65536)": "terngrad",
		"terngrad(clip=0)":                      "terngrad(clip=0)",
		"terngrad(seed=9,clip=1)":               "terngrad(clip=1,seed=9)",
	}, "terngrad(clip=-1)", "terngrad(clip=1e7)", "terngrad(clip=nan)", "terngrad(block=0)",
		"terngrad(block=16777217)", "terngrad(seed=0)", "terngrad(seed=2147483648)", "terngrad(s=1)")
	codectest.Refused(t, New, Config{Clip: math.NaN()}, Config{Clip: math.Inf(1)}, Config{Block: -1}, Config{Block: maxBlock + 1}, Config{Seed: -1})
}
