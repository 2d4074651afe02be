package stochastic3

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
	for _, c := range []Config{{}, {Block: 100, Seed: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"stochastic3":                     "stochastic3",
		"stochastic3(seed=1,block=65536)": "stochastic3",
		"stochastic3(seed=9,block=4096)":  "stochastic3(block=4096,seed=9)",
	}, "stochastic3(block=0)", "stochastic3(block=16777217)", "stochastic3(seed=0)", "stochastic3(seed=2147483648)",
		"stochastic3(s=1)")
	codectest.Refused(t, New, Config{Block: -1}, Config{Block: maxBlock + 1}, Config{Seed: -1})
}
