package codectest

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

// Parse makes a codec of a text as package all does, for the tests of the one method that has fromArgs.
func Parse(text string, fromArgs func(*codecs.Args) (codecs.Codec, error)) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	return fromArgs(a)
}

// Texts checks that each key of want is parsed to a codec with the value as its own text, and that each of refused is
// ErrText.
func Texts(t *testing.T, parse func(string) (codecs.Codec, error), want map[string]string, refused ...string) {
	t.Helper()
	for text, want := range want {
		if got, err := parse(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range refused {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
}

// Refused checks that build refuses each of configs with an ErrText.
func Refused[Config, Codec any](t *testing.T, build func(Config) (Codec, error), configs ...Config) {
	t.Helper()
	for _, c := range configs {
		if _, err := build(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}
