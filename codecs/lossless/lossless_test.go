package lossless

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

func parse(text string) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	return FromArgs(a)
}

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	codec, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

func TestContract(t *testing.T) {
	for _, l := range []Level{Balanced, Fast} {
		t.Run(string(l), func(t *testing.T) { codectest.Run(t, mustNew(t, Config{l}), parse) })
	}
}
