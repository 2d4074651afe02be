package topk

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
	for _, c := range []Config{{K: 0.25, Sampled: true, Block: 1 << 15}, {K: 1, Block: 70}, {K: 0.1, Values: tensor.Float16}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"topk": "topk",
		"topk(k=0.01,threshold=exact,values=fp32,block=1048576)": "topk",
		"topk(k=0.0005,values=bf16)":                             "topk(k=0.0005,values=bf16)",
		"topk(threshold=sampled,block=4096,values=fp16)":         "topk(threshold=sampled,values=fp16,block=4096)",
	}, "topk(k=0)", "topk(k=1.5)", "topk(threshold=guessed)", "topk(values=int8)", "topk(block=0)")
	codectest.Refused(t, New, Config{K: -1}, Config{K: 2}, Config{Block: -1}, Config{Block: 1<<24 + 1}, Config{Values: tensor.Float64})
}
