package threelc

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

func parse(text string) (codecs.Codec, error) { return codectest.Parse(text, FromArgs) }

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	return codectest.New(t, New, c)
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{}, {S: 1.9, Block: 7}, {S: 1.25, Block: 1000}, {Coder: Entropy}, {S: 1.5, Block: 999, Coder: Entropy}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) {
			if 0 < c.Block && c.Block < 100 { // too short for kernels
				codectest.Run(t, codec, parse)
				return
			}
			asmtest.Each(t, func(t *testing.T) { codectest.Run(t, codec, parse) })
		})
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"3lc":                    "3lc",
		"3lc(s=1)":               "3lc",
		"3lc(s=1.75)":            "3lc(s=1.75)",
		"3lc(block=65536,s=1.9)": "3lc(s=1.9)",
		"3lc(block=4096)":        "3lc(block=4096)",
	}, "3lc(s=2)", "3lc(s=0.99)", "3lc(s=1.99999999)", "3lc(block=0)", "3lc(block=16777217)", "3lc(q=1)")
	codectest.Refused(t, New, Config{S: 2}, Config{S: 0.5}, Config{S: -1}, Config{Block: -1}, Config{Block: maxBlock + 1})
}
