package keys

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
)

var suite = codectest.Suite[Coding]{
	New: func(c Coding) (codecs.Codec, error) { return New(c), nil }, FromArgs: FromArgs,
	Configs: every(),
	Texts: map[string]string{
		"delta-binary": "delta-binary", "adaptive-prefix": "adaptive-prefix", "rice": "rice", "bitmap": "bitmap",
		"bit-grain(l=3)": "bit-grain(l=3)",
	},
	BadTexts: []string{"gaps", "bit-grain(l=0)", "bit-grain(l=65)", "rice(l=3)"},
	Golden:   testGoldenVectors,
}

func TestCodec(t *testing.T) { suite.Test(t) }

// codings returns every Coding with its default parameters.
func codings() []Coding {
	return []Coding{DeltaBinary{}, Adaptive{}, BitGrain{L: defaultL}, Rice{}, Bitmap{}}
}

// every is codings and other parameters.
func every() []Coding {
	return append(codings(), BitGrain{L: 1}, BitGrain{L: 3}, BitGrain{L: 5}, BitGrain{L: maxL})
}

func each(t *testing.T, f func(t *testing.T, c Coding)) {
	for _, c := range every() {
		t.Run(c.String(), func(t *testing.T) { f(t, c) })
	}
}

// uniform draws about p·size of the integers below size, each with probability p.
func uniform(seed uint64, p float64, size uint64) (keys []uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for k := uint64(0); ; k++ {
		if k += uint64(math.Log(1-r.Float64()) / math.Log1p(-p)); k >= size {
			return keys
		}
		keys = append(keys, k)
	}
}

// skewed draws gaps below 2^limit with a uniform logarithm.
func skewed(seed uint64, n int, limit float64) []uint64 {
	r := rand.New(rand.NewPCG(seed, 2))
	keys := make([]uint64, n)
	last := uint64(0)
	for i := range keys {
		last += uint64(math.Exp2(r.Float64() * limit))
		keys[i] = last
	}
	return keys
}

// oftenBytes are keys up to the greatest of all that a Bitmap writes in bytes, with some frequent bytes.
func oftenBytes() (keys []uint64) {
	for i := range uint64(300) {
		for bit := range uint64(8) {
			if [...]byte{3, 17, 3, 40, 3}[i*i%5]>>bit&1 == 1 {
				keys = append(keys, 8*i+bit)
			}
		}
	}
	last := keys[len(keys)-1] + 3
	keys = append(keys, last-2, last-1, last)
	for i := range keys {
		keys[i] += math.MaxUint64 - last
	}
	return keys
}

// A Bitmap in bytes is refused if it is cut, or has a key too many or one beyond 2^64.
func TestBitmapInBytesBroken(t *testing.T) {
	keys := oftenBytes()
	b := Bitmap{}.Append(nil, keys)
	if b[0] != formBytes {
		t.Fatalf("it is in form %d", b[0])
	}
	try := func(what string, n int, b []byte) {
		t.Helper()
		if _, err := (Bitmap{}).Decode(make([]uint64, n), b); !errors.Is(err, codecs.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for cut := range b {
		try(fmt.Sprintf("%d bytes", cut), len(keys), b[:cut])
	}
	for more := 1; more < 9; more++ {
		try(fmt.Sprintf("%d keys too many", more), len(keys)-more, b)
	}
	beyond := slices.Clone(b)
	beyond[1]++ // the lowest bits of the first key
	try("beyond 2^64", len(keys), beyond)
}

// samples are keys of every shape.
func samples() map[string][]uint64 {
	const top = math.MaxUint64
	return map[string][]uint64{
		"none":             {},
		"zero":             {0},
		"one":              {1},
		"greatest":         {top},
		"ends":             {0, top},
		"neighbours":       {top - 2, top - 1, top},
		"half":             {1 << 63, 1<<63 + 1, top},
		"32 bits":          {0, math.MaxUint32, 2 * math.MaxUint32},
		"33 bits":          {0, 1, 1 + 1<<32},
		"powers":           {1, 2, 4, 8, 16, 32, 64, 1 << 20, 1 << 40, 1 << 62},
		"all":              slices.Collect(func(yield func(uint64) bool) { count(1000, yield) }),
		"1 %":              uniform(1, 0.01, 1<<18),
		"50 %":             uniform(2, 0.5, 1<<12),
		"40 %":             uniform(6, 0.4, 1<<16),
		"99 %":             uniform(6, 0.99, 1<<12),
		"bytes":            oftenBytes(),
		"skewed":           skewed(3, 3000, 30),
		"skewed far":       skewed(4, 3000, 50),
		"one in the midst": append(uniform(5, 0.1, 1<<12), 1<<50, 1<<50+3, 1<<50+4),
	}
}

func count(n uint64, yield func(uint64) bool) {
	for i := uint64(0); i < n && yield(i); i++ {
	}
}

func TestRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, c Coding) {
		for name, keys := range samples() {
			own := slices.Clone(keys)
			b := c.Append([]byte("before"), keys)
			if !slices.Equal(keys, own) || string(b[:6]) != "before" {
				t.Fatalf("%s: Append changed what it was given", name)
			}
			b = b[6:]
			if len(b) > c.MaxLen(len(keys)) {
				t.Errorf("%s: %d bytes, MaxLen says %d", name, len(b), c.MaxLen(len(keys)))
			}
			got := make([]uint64, len(keys))
			used, err := c.Decode(got, append(b, 0xff, 0xff))
			if err != nil || used != len(b) || !slices.Equal(got, keys) {
				t.Errorf("%s: %d of %d bytes, %v", name, used, len(b), err)
			}
			for cut := range b[:min(len(b), 40)] {
				if used, err := c.Decode(got, b[:cut]); err == nil {
					t.Errorf("%s: %d of the first %d bytes of %d are enough for %d keys", name, used, cut, len(b), len(keys))
				} else if !errors.Is(err, codecs.ErrCorrupt) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// Keys that do not ascend are the caller's mistake.
func TestNotAscending(t *testing.T) {
	each(t, func(t *testing.T, c Coding) {
		for _, keys := range [][]uint64{{3, 3}, {4, 3}, {0, 7, 9, 8}} {
			if ascending(keys) {
				t.Errorf("%d ascend", keys)
			}
			said := func() (said string) {
				defer func() { said = fmt.Sprint(recover()) }()
				c.Append(nil, keys)
				return ""
			}()
			if !strings.Contains(said, "must ascend") {
				t.Errorf("%d: %s", keys, said)
			}
		}
	})
	if !ascending(nil) || !ascending([]uint64{5}) {
		t.Error("no key or one does not ascend")
	}
}

// A decoder gives ascending keys or none.
func TestDecodedKeysAscend(t *testing.T) {
	for _, bad := range []struct {
		c     Coding
		n     int
		bytes []byte
		says  string
	}{
		{DeltaBinary{}, 2, []byte{1, 0, 5, 0}, "key 1 is not greater"},
		{DeltaBinary{}, 2, []byte{2, 0b1100, 9, 0, 255, 255, 255, 255, 255, 255, 255, 255}, "key 1 is not greater"},
		{DeltaBinary{}, 1, []byte{3, 0, 0, 0, 0}, "grain is 3"},
		{DeltaBinary{}, 1, []byte{1, 0b100, 1, 1}, "prefixes beyond"},
		{BitGrain{}, 2, []byte{8, 0b00110000}, "key 1 is not greater"},
		{BitGrain{}, 2, []byte{65, 0, 0, 0, 0, 0}, "deltas have 65 bits"},
		{BitGrain{}, 1, []byte{8, 0b00110001}, "bits do not end"},
		{Adaptive{}, 1, []byte{16, 0, 0, 0, 0}, "first byte is 0x10"},
		{Adaptive{}, 2, []byte{3, 0b00001100, 0b00000000, 0}, "key 1 is not greater"},
		{Adaptive{}, 2, []byte{4, 0b11111111, 0xff, 0xff}, "table of 2 prefixes is none"},
		{Rice{}, 2, []byte{128, 0, 0}, "divisor is 0x80"},
		{Rice{}, 2, []byte{63 | thirdsFlag, 0, 0}, "divisor is 0x7f"},
		{Rice{}, 2, []byte{0, 0x80}, "first key"},
		{Rice{}, 2, []byte{63, 1, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ""},
		{Rice{}, 3, slices.Concat([]byte{63, 1}, slices.Repeat([]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 2)),
			"key 2 is not greater"},
	} {
		keys := make([]uint64, bad.n)
		_, err := bad.c.Decode(keys, bad.bytes)
		if bad.says == "" && err == nil && ascending(keys) {
			continue
		}
		if !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%v: % x: %d, %v; want an ErrCorrupt that says %q", bad.c, bad.bytes, keys, err, bad.says)
		}
	}
}

// The element codecs say why they do not take a block.
func TestUnsuitedElements(t *testing.T) {
	for _, bad := range []struct {
		elements []int32
		says     string
	}{
		{[]int32{1, 2, 2, 3}, "element 2 is not greater"},
		{[]int32{5, 4}, "element 1 is not greater"},
		{[]int32{-5, 3}, "element 1 is not greater"}, // as unsigned numbers
		{[]int32{-5, -3}, "an element is negative"},
		{[]int32{math.MaxInt32}, "no gain"},
		{nil, "no gain"},
	} {
		each(t, func(t *testing.T, c Coding) {
			b, err := encodeElements(t, c, bad.elements)
			if !errors.Is(err, codecs.ErrUnsuited) || !strings.Contains(err.Error(), bad.says) {
				t.Errorf("%d: % x, %v; want an ErrUnsuited that says %q", bad.elements, b, err, bad.says)
			}
		})
	}
}

// ascending reports whether each key is greater than the one before.
func ascending(keys []uint64) bool { return descent(keys) < 0 }
