package threshold

import (
	"math"
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
	for _, c := range []Config{{}, {T: 1e-4, Values: tensor.Float16, Block: 70}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"threshold": "threshold",
		"threshold(t=0.001,values=fp32,block=1048576)": "threshold",
		"threshold(t=1e-05,values=bf16)":               "threshold(t=1e-05,values=bf16)",
	}, "threshold(t=0)", "threshold(t=-1)", "threshold(t=1e39)", "threshold(k=0.1)")
	codectest.Refused(t, New, Config{T: -1}, Config{T: math.NaN()}, Config{T: 1e39}, Config{Block: -1}, Config{Values: tensor.Int32})
}
