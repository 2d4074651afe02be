package lossless

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

var suite = codectest.Suite[Config]{
	New: New, FromArgs: FromArgs,
	Configs:    []Config{{Balanced}, {Fast}},
	Kernels:    func(Config) bool { return true },
	Texts:      map[string]string{"lossless": "lossless", "lossless(level=balanced)": "lossless", "lossless(level=fast)": "lossless(level=fast)"},
	BadTexts:   []string{"lossless(level=best)", "lossless(level=)"},
	BadConfigs: []Config{{"best"}},
	Golden:     testGoldenVectors, Elsewhere: testGoldenVectorsElsewhere,
}

var mustNew = suite.Codec

func TestCodec(t *testing.T) { suite.Test(t) }

// roundTrip encodes and decodes a block and returns the encoding, nil if the block is unsuited.
func roundTrip(t testing.TB, c codecs.Codec, d tensor.DType, block []byte) []byte {
	t.Helper()
	n := len(block) / d.Size()
	e, err := c.NewEncoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := c.NewDecoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, block)
	if errors.Is(err, codecs.ErrUnsuited) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if limit := len(block) - len(block)/64; len(b) > limit {
		t.Fatalf("%d bytes became %d, over the %d that are worth it", len(block), len(b), limit)
	}
	back := make([]byte, len(block))
	if err := dec.Decode(back, b); err != nil {
		t.Fatalf("decoding %d bytes of %v: %v", len(block), d, err)
	}
	if !bytes.Equal(back, block) {
		t.Fatalf("%d bytes of %v changed", len(block), d)
	}
	return b
}

func levels(t *testing.T, f func(*testing.T, codecs.Codec)) {
	for _, l := range []Level{Balanced, Fast} {
		t.Run(string(l), func(t *testing.T) { f(t, mustNew(t, Config{l})) })
	}
}

// Chunks of a block are coded, stored and repeated in any order, and the last has any length.
func TestChunksOfAllForms(t *testing.T) {
	levels(t, func(t *testing.T, c codecs.Codec) {
		const n = chunkBytes / 4
		good := codectest.Gaussian.Fill(tensor.Float32, n, 1)
		random := codectest.Random.Fill(tensor.Float32, n, 2)
		zeros := make([]byte, chunkBytes)
		rows := codectest.Rows.Fill(tensor.Float32, n, 3)
		for _, chunks := range [][][]byte{
			{good}, {good, good}, {good, random}, {random, good}, {random, random, good, random, random},
			{zeros, random, rows, good, zeros}, {good, random[:400]}, {random, zeros[:4]}, {good, zeros[:64]},
		} {
			roundTrip(t, c, tensor.Float32, slices.Concat(chunks...))
		}
		if roundTrip(t, c, tensor.Float32, slices.Concat(random, random, random, good)) == nil {
			t.Error("one good chunk of four is no gain")
		}
		if roundTrip(t, c, tensor.Float32, slices.Concat(random, random)) != nil {
			t.Error("random bits became shorter")
		}
		for _, cut := range []int{1, 2, 3, 5, 8, 63} { // bytes of no known type
			roundTrip(t, c, tensor.NoDType, slices.Concat(good, rows)[cut:])
			roundTrip(t, c, tensor.NoDType, slices.Concat(good, rows)[:2*chunkBytes-cut])
		}
	})
}

// TestRatiosOfRecordedGradients has bars for four recorded vectors: the order-0 entropy of their exponents, and the
// savings of zeros and dead planes.
func TestRatiosOfRecordedGradients(t *testing.T) {
	minimum := map[string][2]float64{ // balanced, fast
		"cnn/float32": {1.17, 1.13}, "cnn/bfloat16": {1.43, 1.32},
		"mlp/float32": {1.60, 1.57}, "mlp/bfloat16": {1.85, 1.78},
		"lm/float32": {1.47, 1.44}, "lm/bfloat16": {1.72, 1.67}, "lm/mixed": {3.4, 3.3},
		"pseudo/float32": {1.27, 1.13}, "pseudo/bfloat16": {1.43, 1.32},
		"normal/float16": {1.10, 0}, "normal/float64": {1.12, 1.06}, "keys/uint64": {8, 7}, "cnn/unknown": {1.17, 1.13},
	}
	for i, l := range []Level{Balanced, Fast} {
		c := mustNew(t, Config{l})
		for _, in := range inputs() {
			b := roundTrip(t, c, in.dtype, in.data)
			ratio := 0.0
			if b != nil {
				ratio = float64(len(in.data)) / float64(len(b))
			}
			if ratio < minimum[in.name][i] {
				t.Errorf("%s, %s: ratio %.3f, want %v", in.name, l, ratio, minimum[in.name][i])
			}
		}
	}
}

// It costs nothing if the type of the bytes is not known: guessing finds it.
func TestUnknownTypeIsGuessed(t *testing.T) {
	c := mustNew(t, Config{})
	for _, k := range []codectest.Kind{codectest.Gaussian, codectest.Rows, codectest.Keys, codectest.Small} {
		for _, d := range tensor.DTypes() {
			block := k.Fill(d, 8000, 1)
			known, unknown := len(block), len(block)
			if b := roundTrip(t, c, d, block); b != nil {
				known = len(b)
			}
			if b := roundTrip(t, c, tensor.NoDType, block); b != nil {
				unknown = len(b)
			}
			if float64(unknown) > 1.02*float64(known) {
				t.Errorf("%v of %v: %d bytes, but %d of unknown type", k, d, known, unknown)
			}
		}
	}
}

// Keys in order cost little more than the entropy of their gaps, in any integer type that can hold them.
func TestRisingKeys(t *testing.T) {
	c := mustNew(t, Config{})
	for _, d := range []tensor.DType{tensor.Int32, tensor.Uint32, tensor.Int64, tensor.Uint64} {
		const n = 1 << 15
		b := roundTrip(t, c, d, codectest.Keys.Fill(d, n, 1))
		// Gaps are the floor of an exponential of mean 40: 6.8 bits of entropy; Huffman and headers add some.
		if bits := 8 * float64(len(b)) / n; bits == 0 || bits > 7.9 {
			t.Errorf("%v: %.2f bits a key", d, bits)
		}
	}
}

// Once warm, coding allocates nothing, whether it pays or not.
func TestNoAllocation(t *testing.T) {
	if require.Race {
		t.Skip("the race detector makes pools forget")
	}
	levels(t, func(t *testing.T, c codecs.Codec) {
		for _, in := range inputs() {
			n := len(in.data) / in.dtype.Size()
			e, err := c.NewEncoder(in.dtype, n)
			if err != nil {
				t.Fatal(err)
			}
			d, err := c.NewDecoder(in.dtype, n)
			if err != nil {
				t.Fatal(err)
			}
			src, dst, back := in.data, make([]byte, 0, 2*len(in.data)), make([]byte, len(in.data))
			if a := testing.AllocsPerRun(20, func() { dst, err = e.Append(dst[:0], src) }); a != 0 {
				t.Errorf("%s: Append allocates %v times", in.name, a)
			}
			if err != nil {
				continue
			}
			if a := testing.AllocsPerRun(20, func() { err = d.Decode(back, dst) }); a != 0 || err != nil {
				t.Errorf("%s: Decode allocates %v times, %v", in.name, a, err)
			}
		}
	})
}
