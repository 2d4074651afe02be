package drive

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
	for _, c := range []Config{{}, {Unbiased: true}, {Block: 64, Seed: 7}, {Block: 1}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"drive":                                  "drive",
		"drive(scale=biased,block=4096,seed=1)":  "drive",
		"drive(seed=9,block=128,scale=unbiased)": "drive(scale=unbiased,block=128,seed=9)",
	}, "drive(block=0)", "drive(block=100)", "drive(block=2097152)", "drive(seed=0)", "drive(seed=2147483648)",
		"drive(scale=1)", "drive(bits=1)")
	codectest.Refused(t, New, Config{Block: -1}, Config{Block: 3}, Config{Block: 2 * maxBlock}, Config{Seed: -1})
}
