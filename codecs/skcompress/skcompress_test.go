package skcompress

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
	for _, c := range []Config{{Q: 32}, {Mode: Sparse, Q: 20, R: 3, Rows: 3, Cols: 1, Block: 777}, {Mode: Joint, Block: 1000}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"skcompress", "skcompress"},
		{"skcompress(q=256,r=8,rows=2,cols=0.2)", "skcompress"},
		{"skcompress(q=256,mode=dense)", "skcompress(q=256,mode=dense)"},
		{"skcompress(mode=dense,q=16,r=1)", "skcompress(mode=dense)"},
		{"skcompress(mode=auto,m=256)", "skcompress(m=256)"},
		{"skcompress(mode=joint,cols=0.5,block=65536)", "skcompress(cols=0.5,mode=joint,block=65536)"},
	} {
		if got, err := parse(c.text); err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{
		"skcompress(q=1)", "skcompress(q=32769)", "skcompress(r=0)", "skcompress(rows=9)", "skcompress(cols=0)", "skcompress(m=8)",
		"skcompress(mode=list)", "skcompress(block=0)", "skcompress(mode=joint,r=2)", "skcompress(k=2)",
	} {
		if _, err := parse(text); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%q: %v, want ErrText", text, err)
		}
	}
	for _, c := range []Config{{Q: -1}, {R: maxR + 1}, {Cols: 1.5}, {Cols: -0.1}, {Mode: "Auto"}, {Block: maxBlock + 1}} {
		if _, err := New(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("%+v: %v, want ErrText", c, err)
		}
		if _, err := NewPairs(c); !errors.Is(err, codecs.ErrText) {
			t.Errorf("pairs, %+v: %v, want ErrText", c, err)
		}
		if _, err := NewDriver(c, 10); !errors.Is(err, codecs.ErrText) {
			t.Errorf("driver, %+v: %v, want ErrText", c, err)
		}
	}
}
