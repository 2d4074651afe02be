package int255

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
	codectest.Texts(t, parse, map[string]string{"int255": "int255", "int255(block=65536)": "int255", "int255(block=1024)": "int255(block=1024)"},
		"int255(block=0)", "int255(block=1048577)", "int255(bits=8)")
	codectest.Refused(t, New, Config{Block: -1}, Config{Block: maxBlock + 1})
}
