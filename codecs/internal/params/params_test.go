package params

import (
	"errors"
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

type kind uint8

type config struct {
	K       float64
	Block   int
	On      bool
	Kind    kind
	Seed    int
	Element string
}

var table = Table[config]{Name: "toy", Params: []Param[config]{
	Float("k", 0.5, 0.25, 1, func(c *config) *float64 { return &c.K }),
	Int("block", 7, 1, 9, func(c *config) *int { return &c.Block }),
	Switch("mode", "slow", "fast", func(c *config) *bool { return &c.On }),
	Choice("kind", []string{"a", "b"}, func(c *config) *kind { return &c.Kind }),
	Seed(func(c *config) *int { return &c.Seed }),
	Named("element", map[string]string{"x": "ex", "y": "why"}, []string{"ex", "why"}, func(c *config) *string { return &c.Element }),
}}

// Zero fields become the defaults, fields in their bounds stay, and others are refused.
func TestComplete(t *testing.T) {
	c := config{}
	if err := table.Complete(&c); err != nil || c != (config{K: 0.5, Block: 7, Seed: 1, Element: "x"}) {
		t.Errorf("%+v, %v", c, err)
	}
	set := config{K: 1, Block: 9, On: true, Kind: 1, Seed: 3, Element: "y"}
	if c = set; table.Complete(&c) != nil || c != set {
		t.Errorf("%+v, want %+v", c, set)
	}
	for _, c := range []config{{K: 0.2}, {K: 1.1}, {K: math.NaN()}, {Block: -1}, {Block: 10}, {Kind: 2}, {Seed: -1}, {Element: "z"}} {
		if err := table.Complete(&c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
	}
}

// A text and its Config stand for each other, and defaults are left out.
func TestText(t *testing.T) {
	for text, want := range map[string]config{
		"toy":                 {K: 0.5, Block: 7, Seed: 1, Element: "x"},
		"toy(k=1,kind=b)":     {K: 1, Block: 7, Kind: 1, Seed: 1, Element: "x"},
		"toy(block=3,seed=2)": {K: 0.5, Block: 3, Seed: 2, Element: "x"},
		"toy(k=0.25,block=9,mode=fast,kind=b,seed=5,element=why)": {0.25, 9, true, 1, 5, "y"},
	} {
		a, err := codecs.ParseText(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := table.Parse(a)
		if err != nil || c != want || table.Text(c) != text {
			t.Errorf("%s: %+v (%s), %v, want %+v", text, c, table.Text(c), err, want)
		}
	}
	for _, text := range []string{"toy(k=2)", "toy(block=0)", "toy(mode=none)", "toy(kind=c)", "toy(element=x)", "toy(size=1)"} {
		a, err := codecs.ParseText(text)
		if err != nil {
			t.Fatal(err)
		}
		build := func(config) (codecs.Codec, error) { panic("built") }
		if _, err := table.FromArgs(a, build); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%s: %v, want ErrText", text, err)
		}
	}
}
