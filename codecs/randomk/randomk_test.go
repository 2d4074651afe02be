package randomk

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/tensor"
)

func parse(text string) (codecs.Codec, error) { return codectest.Parse(text, FromArgs) }

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	return codectest.New(t, New, c)
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{}, {K: 0.1, Unbiased: true, Values: tensor.BFloat16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"randomk": "randomk",
		"randomk(k=0.01,scale=none,seed=1,values=fp32,block=1048576)": "randomk",
		"randomk(scale=unbiased,seed=7,values=bf16)":                  "randomk(scale=unbiased,seed=7,values=bf16)",
	}, "randomk(k=0)", "randomk(k=2)", "randomk(seed=0)", "randomk(scale=n)")
	codectest.Refused(t, New, Config{K: -1}, Config{K: 2}, Config{Block: -1}, Config{Seed: -1}, Config{Values: tensor.Int32})
}
