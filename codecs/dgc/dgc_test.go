package dgc

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
	for _, c := range []Config{{}, {K: 0.1, Warmup: 1, Values: tensor.BFloat16, Block: 1000}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"dgc": "dgc",
		"dgc(k=0.001,warmup=0,values=fp32,block=1048576)": "dgc",
		"dgc(warmup=400,k=0.01)":                          "dgc(k=0.01,warmup=400)",
	}, "dgc(k=0)", "dgc(warmup=-1)", "dgc(values=int8)", "dgc(threshold=exact)")
	codectest.Refused(t, New, Config{K: -1}, Config{K: 2}, Config{Block: -1}, Config{Values: tensor.Int32})
}
