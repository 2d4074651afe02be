package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// checkRice fails unless keys of 32 bits are coded as the same of 64 are, and come back.
func checkRice(t *testing.T, keys []uint32) {
	t.Helper()
	same, beyond := make([]uint64, len(keys)), make([]uint64, len(keys))
	for i, key := range keys {
		same[i], beyond[i] = uint64(key), 1<<40+uint64(key)
	}
	restore := simd.Limit(simd.Plain)
	want, wantBeyond := Rice{}.Append([]byte("before"), same), Rice{}.Append(nil, beyond)
	restore()
	asmtest.Do(t, func(simd.Tier) {
		// Memory that is not clean, of more room than needed or of none.
		for _, dst := range [][]byte{bytes.Repeat([]byte{0xff}, 64+5*len(keys)), nil} {
			got := Rice{}.Append32(append(dst[:0], "before"...), keys)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d become %x, as keys of 64 bits %x", keys, got, want)
			}
			if got := (Rice{}).Append(dst[:0], beyond); !bytes.Equal(got, wantBeyond) {
				t.Fatalf("%d become %x, in Go %x", beyond, got, wantBeyond)
			}
		}
		back := make([]uint32, len(keys))
		used, err := Rice{}.Decode32(back, want[6:])
		if err != nil || used != len(want)-6 || !slices.Equal(back, keys) {
			t.Fatalf("%d come back as %d, after %d bytes of %d: %v", keys, back, used, len(want)-6, err)
		}
	})
	backBeyond := make([]uint64, len(keys))
	if used, err := (Rice{}).Decode(backBeyond, wantBeyond); err != nil || used != len(wantBeyond) || !slices.Equal(backBeyond, beyond) {
		t.Fatalf("%d come back as %d, after %d bytes of %d: %v", beyond, backBeyond, used, len(wantBeyond), err)
	}
}

// For all gaps, keys of 32 bits have the codes of keys of 64 bits.
func TestRice32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, limit := range []uint32{1, 2, 3, 4, 5, 13, 100, 1 << 10, 1 << 20, 1 << 26} {
		for _, odd := range []uint32{0, 7, 40, 2} { // one gap of so many is large
			for _, n := range []int{0, 1, 2, 16, 17, 18, 33, 49, 300, 1030} {
				var keys []uint32
				for key := uint32(r.Uint32N(limit)); len(keys) < n; {
					keys = append(keys, key)
					step := 1 + r.Uint32N(limit)
					if odd > 0 && r.Uint32N(odd) == 0 {
						step *= 1 + r.Uint32N(100)
					}
					if key > math.MaxUint32-step {
						break
					}
					key += step
				}
				checkRice(t, keys)
			}
		}
	}
}

// FuzzRice32: gaps of any bytes.
func FuzzRice32(f *testing.F) {
	for n := range 8 {
		f.Add(bytes.Repeat([]byte{1, 3, 200, byte(n)}, 1+9*n), byte(n))
	}
	f.Fuzz(func(t *testing.T, gaps []byte, width byte) {
		w := 1 + int(width%4)
		var keys []uint32
		for key := uint64(0); len(gaps) >= w; gaps = gaps[w:] {
			var b [4]byte
			copy(b[:], gaps[:w])
			if key += uint64(binary.LittleEndian.Uint32(b[:])) + 1; key > math.MaxUint32 {
				break
			}
			keys = append(keys, uint32(key))
		}
		checkRice(t, keys)
	})
}

// Keys that do not ascend panic wherever they are, at every tier.
func TestDescent32(t *testing.T) {
	for _, at := range []int{1, 5, 16, 17, 20, 32, 33, 36} {
		for _, wrong := range []uint32{0, 99, 1 << 31, math.MaxUint32} {
			keys := make([]uint32, 37)
			for i := range keys {
				keys[i] = 100 + uint32(i)
			}
			keys[at] = wrong
			if at == 36 && wrong > 99 {
				continue // the last may be anything greater
			}
			asmtest.Do(t, func(simd.Tier) {
				defer func() {
					if recover() == nil {
						t.Errorf("key %d is %d, and nothing is said", at, wrong)
					}
				}()
				Rice{}.Append32(nil, keys)
			})
		}
	}
}

// A key of more than 32 bits is corrupt where 32 are asked for.
func TestDecode32(t *testing.T) {
	for _, keys := range [][]uint64{{1 << 32}, {1, 1 << 32}, {1, 2, 1<<32 + 1}} {
		if _, err := (Rice{}).Decode32(make([]uint32, len(keys)), Rice{}.Append(nil, keys)); !errors.Is(err, codecs.ErrCorrupt) {
			t.Errorf("%d: %v, want ErrCorrupt", keys, err)
		}
	}
}

func BenchmarkRice32(b *testing.B) {
	for _, every := range []int{3, 10, 100, 1000} {
		r := rand.New(rand.NewPCG(1, 1))
		var keys []uint32
		for i := uint32(0); len(keys) < 10486; i++ {
			if r.IntN(every) == 0 {
				keys = append(keys, i)
			}
		}
		dst := Rice{}.Append32(nil, keys)
		src := slices.Clone(dst)
		run := func(name string, op func()) {
			b.Run(fmt.Sprintf("1 in %d/%s", every, name), func(b *testing.B) {
				for b.Loop() {
					op()
				}
				b.ReportMetric(float64(len(keys))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
			})
		}
		for _, tier := range asmtest.Tiers() {
			run("append-"+tier.String(), func() {
				defer simd.Limit(tier)()
				dst = Rice{}.Append32(dst[:0], keys)
			})
		}
		wide := make([]uint64, len(keys))
		for i, key := range keys {
			wide[i] = uint64(key)
		}
		run("append-wide", func() { dst = Rice{}.Append(dst[:0], wide) })
		back := make([]uint32, len(keys))
		run("decode", func() {
			if _, err := (Rice{}).Decode32(back, src); err != nil {
				b.Fatal(err)
			}
		})
	}
}
