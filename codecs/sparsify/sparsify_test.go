package sparsify

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
	for _, c := range []Config{{}, {K: 0.05, Values: tensor.BFloat16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"sparsify": "sparsify",
		"sparsify(k=0.25,values=fp32,block=1048576)": "sparsify",
		"sparsify(k=0.05,values=bf16,block=9)":       "sparsify(k=0.05,values=bf16,block=9)",
	}, "sparsify(k=0)", "sparsify(k=2)", "sparsify(values=int8)", "sparsify(bitmap=no)")
	codectest.Refused(t, New, Config{K: -1}, Config{K: 2}, Config{Block: -1}, Config{Values: tensor.Int32})
}
