package sketchedsgd

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs: []Config{{}, {K: 1, P: 1, Rows: 3, Cols: 0.5, Cells: countsketch.Float16}, {K: 0.1, Pick: HeavyMix, Seed: 5, Block: 1000}},
	Texts: map[string]string{
		"sketchedsgd": "sketchedsgd",
		"sketchedsgd(rows=5,cols=0.03125,k=0.01,p=4,cells=float32,pick=topk,seed=1,block=1048576)": "sketchedsgd",
		"sketchedsgd(pick=heavymix,cells=float16)":                                                 "sketchedsgd(cells=float16,pick=heavymix)",
		"sketchedsgd(k=0.001,p=16,rows=15,cols=0.002,block=65536)":                                 "sketchedsgd(k=0.001,p=16,rows=15,cols=0.002,block=65536)",
	},
	BadTexts: []string{"sketchedsgd(rows=4)", "sketchedsgd(rows=17)", "sketchedsgd(k=0)", "sketchedsgd(k=1.5)", "sketchedsgd(cols=0)",
		"sketchedsgd(p=0)", "sketchedsgd(cells=int8)", "sketchedsgd(pick=best)", "sketchedsgd(seed=0)",
		"sketchedsgd(block=0)"},
	BadConfigs: []Config{{K: -1}, {K: 2}, {P: -1}, {Rows: 2}, {Cols: 2}, {Cells: 9}, {Pick: 9}, {Block: -1}, {Block: maxBlock + 1}, {Seed: 1 << 63}},
	Benchmarks: []Config{{}, {Pick: HeavyMix}},
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }
func Benchmark(b *testing.B) { suite.Bench(b) }

// A Config that New has taken makes plans of every length that a coder may have.
func TestLengths(t *testing.T) {
	for _, c := range []Config{{K: 1, Cols: 1}, {K: minPart, Cols: minPart, P: maxP}} {
		codec := mustNew(t, c)
		m, _ := codecs.MethodOf(codec)
		for _, n := range []int{1, maxN} {
			p := m.(*method).config.params(n)
			if p.K < 1 || p.K > n || p.Columns < 1 || p.Columns > countsketch.MaxColumns || p.Candidates() > n {
				t.Errorf("%v of %d values: %+v", codec, n, p)
			}
		}
		if _, err := m.NewEncoder(maxN + 1); !errors.Is(err, codecs.ErrUnsuited) {
			t.Errorf("%v, want ErrUnsuited", err)
		}
		if _, err := m.NewDecoder(maxN + 1); !errors.Is(err, codecs.ErrUnsuited) {
			t.Errorf("%v, want ErrUnsuited", err)
		}
	}
}
