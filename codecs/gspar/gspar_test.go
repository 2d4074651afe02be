package gspar

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
	for _, c := range []Config{
		{Kappa: 0.5, Seed: 3, Block: 1000}, {Eps: 1, Block: 70}, {Uniform: true},
	} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"gspar":                                  "gspar",
		"gspar(kappa=0.01,seed=1,block=1048576)": "gspar",
		"gspar(kappa=0.05)":                      "gspar(kappa=0.05)",
		"gspar(eps=1)":                           "gspar(eps=1)",
		"gspar(block=4096,seed=7,eps=0.01)":      "gspar(eps=0.01,seed=7,block=4096)",
		"unisp":                                  "unisp",
		"unisp(kappa=0.5)":                       "unisp(kappa=0.5)",
	}, "gspar(kappa=0)", "gspar(kappa=1.1)", "gspar(eps=0)", "gspar(eps=1,kappa=0.1)", "unisp(eps=1)",
		"gspar(seed=0)", "gspar(block=0)")
	codectest.Refused(t, New, Config{Kappa: -1}, Config{Kappa: 2}, Config{Eps: -1}, Config{Eps: 1e10}, Config{Eps: 1, Kappa: 1}, Config{Eps: 1, Uniform: true}, Config{Seed: -1}, Config{Block: -1})
}
