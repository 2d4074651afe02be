package lossless

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// FuzzDecode: any bytes are an encoding or ErrCorrupt, for a block of any length. An encoding sets all of the block,
// the same with every kernel, and nothing beside it is ever set.
func FuzzDecode(f *testing.F) {
	c := mustNew(f, Config{})
	for _, k := range codectest.Kinds() {
		for _, d := range append(tensor.DTypes(), tensor.NoDType) {
			e, err := c.NewEncoder(d, 200)
			if err != nil {
				f.Fatal(err)
			}
			if b, err := e.Append(nil, k.Fill(d, 200, 1)); err == nil {
				f.Add(uint32(200*d.Size()), b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, size uint32, src []byte) {
		n := int(size % (2*chunkBytes + 100))
		d, err := c.NewDecoder(tensor.Uint8, n)
		if err != nil {
			t.Fatal(err)
		}
		var plain []byte // the result at simd.Plain
		asmtest.Do(t, func(tier simd.Tier) {
			around := bytes.Repeat([]byte{0xa5}, n+64)
			dst := around[32 : 32+n : 32+n]
			err := d.Decode(dst, src)
			if err != nil && !errors.Is(err, codecs.ErrCorrupt) {
				t.Fatalf("%v is not an ErrCorrupt", err)
			}
			if bytes.Count(around[:32], []byte{0xa5}) != 32 || bytes.Count(around[32+n:], []byte{0xa5}) != 32 {
				t.Fatal("Decode wrote beside dst")
			}
			switch {
			case tier == simd.Plain && err == nil:
				plain = append([]byte{}, dst...)
			case tier != simd.Plain && (err == nil) != (plain != nil), err == nil && !bytes.Equal(dst, plain):
				t.Fatalf("%v decodes otherwise than Go: %v", tier, err)
			}
		})
	})
}

// FuzzRoundTrip: any elements of any type come back, at every level, alone and repeated to several chunks.
func FuzzRoundTrip(f *testing.F) {
	for _, path := range goldenFiles(f) {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(len(b)), uint16(len(b)), b)
	}
	for _, k := range codectest.Kinds() {
		for d := range tensor.DTypes() {
			f.Add(uint8(d), uint16(0), k.Fill(tensor.DTypes()[d], 100, 2))
		}
	}
	types := append(tensor.DTypes(), tensor.NoDType)
	all := []codecs.Codec{mustNew(f, Config{}), mustNew(f, Config{Fast})}
	f.Fuzz(func(t *testing.T, which uint8, times uint16, b []byte) {
		d := types[int(which)%len(types)]
		b = bytes.Repeat(b, min(1+int(times), 1+2*chunkBytes/(len(b)+1)))
		b = b[:len(b)/d.Size()*d.Size()]
		for _, c := range all {
			asmtest.Do(t, func(simd.Tier) { roundTrip(t, c, d, b) })
		}
	})
}

func goldenFiles(t testing.TB) []string {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	return paths
}
