package drive

import (
	"errors"
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

func TestConformance(t *testing.T) {
	for _, c := range []Config{{}, {Unbiased: true}, {Block: 64, Seed: 7}, {Block: 1}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"drive":                                  "drive",
		"drive(scale=biased,block=4096,seed=1)":  "drive",
		"drive(seed=9,block=128,scale=unbiased)": "drive(scale=unbiased,block=128,seed=9)",
	} {
		if got, err := parse(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"drive(block=0)", "drive(block=100)", "drive(block=2097152)", "drive(seed=0)", "drive(seed=2147483648)", "drive(scale=1)", "drive(bits=1)"} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Block: -1}, {Block: 3}, {Block: 2 * maxBlock}, {Seed: -1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
