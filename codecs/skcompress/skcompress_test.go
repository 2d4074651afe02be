package skcompress

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
	for _, c := range []Config{{Q: 32}, {Mode: Sparse, Q: 20, R: 3, Rows: 3, Cols: 1, Block: 777}, {Mode: Joint, Block: 1000}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) { codectest.Run(t, codec, parse) })
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"skcompress":                                  "skcompress",
		"skcompress(q=256,r=8,rows=2,cols=0.2)":       "skcompress",
		"skcompress(q=256,mode=dense)":                "skcompress(q=256,mode=dense)",
		"skcompress(mode=dense,q=16,r=1)":             "skcompress(mode=dense)",
		"skcompress(mode=auto,m=256)":                 "skcompress(m=256)",
		"skcompress(mode=joint,cols=0.5,block=65536)": "skcompress(cols=0.5,mode=joint,block=65536)",
	}, "skcompress(q=1)", "skcompress(q=32769)", "skcompress(r=0)", "skcompress(rows=9)", "skcompress(cols=0)",
		"skcompress(m=8)", "skcompress(mode=list)", "skcompress(block=0)", "skcompress(mode=joint,r=2)",
		"skcompress(k=2)")
	refused := []Config{{Q: -1}, {R: maxR + 1}, {Cols: 1.5}, {Cols: -0.1}, {Mode: "Auto"}, {Block: maxBlock + 1}}
	codectest.Refused(t, New, refused...)
	codectest.Refused(t, NewPairs, refused...)
	codectest.Refused(t, func(c Config) (*Driver, error) { return NewDriver(c, 10) }, refused...)
}
