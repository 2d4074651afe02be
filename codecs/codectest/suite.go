package codectest

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

// A Suite has the tests and benchmarks that every package of a codec runs alike. The package adds the tests of its
// paper and its fuzz targets.
type Suite[Config any] struct {
	New      func(Config) (codecs.Codec, error)
	FromArgs func(*codecs.Args) (codecs.Codec, error)

	Configs []Config          // must pass Run
	Kernels func(Config) bool // reports whether a codec runs kernels, and must pass at each tier of processors; nil: none does

	Texts      map[string]string // texts, and the codec's own text for each
	BadTexts   []string          // must be refused with ErrText
	BadConfigs []Config          // must be refused with ErrText

	Benchmarks []Config // of value codecs

	Golden    func(*testing.T) // checks the files of testdata; nil: the package's Golden does, whose form of file they have
	Elsewhere func(*testing.T) // checks them by an implementation that shares nothing with the package; nil: the package's Elsewhere does
}

// Test runs five subtests: Conformance runs the Configs through Run, Concurrent through the function of that name, Text
// checks texts and configurations, GoldenVectors compares with the files of testdata, and GoldenVectorsElsewhere checks
// that an implementation which shares nothing with the package makes the same files, or reads the same values from
// them.
func (s Suite[Config]) Test(t *testing.T) {
	t.Run("Conformance", func(t *testing.T) { s.each(t, func(t *testing.T, c codecs.Codec) { Run(t, c, s.Parse) }) })
	t.Run("Concurrent", func(t *testing.T) { s.each(t, Concurrent) })
	t.Run("Text", func(t *testing.T) {
		Texts(t, s.Parse, s.Texts, s.BadTexts...)
		Refused(t, s.New, s.BadConfigs...)
	})
	t.Run("GoldenVectors", func(t *testing.T) {
		golden := s.Golden
		if golden == nil {
			golden = func(t *testing.T) { Golden(t, s.Parse) }
		}
		if s.Kernels != nil {
			asmtest.Each(t, golden)
		} else {
			golden(t)
		}
	})
	elsewhere := s.Elsewhere
	if elsewhere == nil {
		elsewhere = Elsewhere
	}
	t.Run("GoldenVectorsElsewhere", elsewhere)
}

// each calls f in a subtest for the codec of each of Configs, and for one that runs kernels in a subtest of that for
// each tier.
func (s Suite[Config]) each(t *testing.T, f func(*testing.T, codecs.Codec)) {
	for _, config := range s.Configs {
		c := s.Codec(t, config)
		t.Run(c.String(), func(t *testing.T) {
			if s.Kernels != nil && s.Kernels(config) {
				asmtest.Each(t, func(t *testing.T) { f(t, c) })
			} else {
				f(t, c)
			}
		})
	}
}

// Bench runs BenchLossy of each of Benchmarks, in a subbenchmark of its text.
func (s Suite[Config]) Bench(b *testing.B) {
	for _, config := range s.Benchmarks {
		c := s.Codec(b, config)
		b.Run(c.String(), func(b *testing.B) { BenchLossy(b, c) })
	}
}

// Codec returns the codec of a Config, which New must take.
func (s Suite[Config]) Codec(t testing.TB, config Config) codecs.Codec {
	t.Helper()
	c, err := s.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Parse makes the codec of a text as package all does.
func (s Suite[Config]) Parse(text string) (codecs.Codec, error) { return Parse(text, s.FromArgs) }
