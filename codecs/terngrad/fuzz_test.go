package terngrad

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are 0 and one magnitude a block, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(4), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\x02"), uint16(4), byte(0))
	codectest.FuzzDecode(f, codectest.OneMagnitude(fuzzBlock), mustNew(f, Config{Block: fuzzBlock}))
}

// FuzzRoundTrip: a value comes back as 0 or with its sign, and the largest of a block that is not clipped as itself.
func FuzzRoundTrip(f *testing.F) {
	clipped, bare := mustNew(f, Config{Block: fuzzBlock}), mustNew(f, Config{Block: fuzzBlock, Clip: -1})
	codectest.FuzzRoundTrip(f, codectest.ZeroOrSigned(fuzzBlock, func(c codecs.Codec) bool { return c == bare }), clipped, bare)
}
