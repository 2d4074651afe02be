package block

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
)

func parse(text string) (codecs.Codec, error) { return codectest.Parse(text, FromArgs) }

func mustNew(t testing.TB, c Config) codecs.Codec {
	t.Helper()
	return codectest.New(t, New, c)
}

func TestConformance(t *testing.T) {
	for _, c := range []Config{{Bits: 8}, {Bits: 4}, {Bits: 8, Block: 1}, {Bits: 4, Block: 7}} {
		codec := mustNew(t, c)
		t.Run(codec.String(), func(t *testing.T) {
			if c.Block > 0 { // too short for kernels
				codectest.Run(t, codec, parse)
				return
			}
			asmtest.Each(t, func(t *testing.T) { codectest.Run(t, codec, parse) })
		})
	}
}

func TestText(t *testing.T) {
	codectest.Texts(t, parse, map[string]string{
		"int8":             "int8",
		"int8(block=1024)": "int8",
		"int8(block=256)":  "int8(block=256)",
		"int4":             "int4",
		"int4(block=256)":  "int4",
		"int4(block=1024)": "int4(block=1024)",
	}, "int8(block=0)", "int4(block=1048577)", "int8(bits=4)")
	codectest.Refused(t, New, Config{}, Config{Bits: 2}, Config{Bits: 8, Block: -1}, Config{Bits: 4, Block: maxBlock + 1})
}
