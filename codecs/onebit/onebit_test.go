package onebit

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
	for _, c := range []Config{{}, {Block: 100}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{"onebit": "onebit", "onebit(block=65536)": "onebit", "onebit(block=1024)": "onebit(block=1024)"},
		"onebit(block=0)", "onebit(block=16777217)", "onebit(bits=1)")
	codectest.Refused(t, New, Config{Block: -1}, Config{Block: maxBlock + 1})
}
