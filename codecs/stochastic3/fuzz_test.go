package stochastic3

import (
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

const fuzzBlock = 20

// FuzzDecode: any bytes are 0 and one magnitude a block, or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x4d"), uint16(5), byte(0))
	f.Add([]byte("\x00\x00\x80\x3f\xf3"), uint16(10), byte(0))
	codectest.FuzzDecode(f, codectest.OneMagnitude(fuzzBlock), mustNew(f, Config{Block: fuzzBlock}))
}

// FuzzRoundTrip: a value comes back as 0 or with its sign, and the largest of a block as itself.
func FuzzRoundTrip(f *testing.F) {
	all := func(codecs.Codec) bool { return true }
	codectest.FuzzRoundTrip(f, codectest.ZeroOrSigned(fuzzBlock, all), mustNew(f, Config{Block: fuzzBlock}))
}
