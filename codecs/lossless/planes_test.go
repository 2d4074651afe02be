package lossless

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

// plainExchange moves the upper bits of each float of width w below the eight bits after them, as the package comment
// words it: one of float16, bfloat16 and float32, four of float64.
func plainExchange(src []byte, w int) []byte {
	top := uint(1)
	if w == 8 {
		top = 4
	}
	rest := uint(8*w) - 8 - top
	dst := make([]byte, 0, len(src))
	for i := 0; i < len(src); i += w {
		var b [8]byte
		copy(b[:], src[i:i+w])
		x := binary.LittleEndian.Uint64(b[:])
		e, t, m := x>>rest&0xff, x>>(rest+8), x&(1<<rest-1)
		binary.LittleEndian.PutUint64(b[:], e<<(rest+top)|t<<rest|m)
		dst = append(dst, b[:w]...)
	}
	return dst
}

// plainHalve takes lanes of 2h bits apart bit by bit: of two words, lane i of x gives lane 2i, and lane i of y lane
// 2i+1.
func plainHalve(src []byte, h int) (lo, hi []byte) {
	for ; len(src) > 0; src = src[16:] {
		var out [2][8]byte
		for word := range 2 {
			for lane := range 32 / h {
				for half := range 2 {
					for bit := range h {
						from := 64*word + 2*h*lane + h*half + bit
						to := h*(2*lane+word) + bit
						out[half][to/8] |= src[from/8] >> (from % 8) & 1 << (to % 8)
					}
				}
			}
		}
		lo, hi = append(lo, out[0][:]...), append(hi, out[1][:]...)
	}
	return lo, hi
}

// plainPlanes takes elements apart into planes of one byte.
func plainPlanes(src []byte, w int, float bool) [][]byte {
	if float {
		src = plainExchange(src, w)
	}
	planes := [][]byte{src}
	for h := 4 * w; h >= 8; h /= 2 {
		var next [][]byte
		for _, p := range planes {
			lo, hi := plainHalve(p, h)
			next = append(next, lo, hi)
		}
		planes = next
	}
	return planes
}

// Every way of splitting that works on words gives the planes of the plain one, and joining gives the elements back.
func TestSplitIsThePlainOne(t *testing.T) {
	asmtest.Each(t, testSplitIsThePlainOne)
}

func testSplitIsThePlainOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := new(scratch)
	for f := formBytes; f < forms; f++ {
		for _, n := range []int{0, 8, 16, 24, 32, 64, 96, 200, 1000} {
			w := f.width()
			src := make([]byte, n*w)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			want := plainPlanes(src, w, f >= formFloat16)
			if f == formFloat32 {
				low, _ := plainHalve(plainExchange(src, 4), 16)
				want = [][]byte{low, want[2], want[3]}
			}
			var planes [8][]byte
			for i := range f.planes() {
				planes[i] = make([]byte, f.planeLen(i, n))
			}
			s.split(f, &planes, src)
			for i := range want {
				if !bytes.Equal(planes[i], want[i]) {
					t.Errorf("form %d, %d elements: plane %d is\n%x, want\n%x", f, n, i, planes[i], want[i])
				}
			}
			back := make([]byte, len(src))
			if s.join(f, back, &planes); !bytes.Equal(back, src) {
				t.Errorf("form %d, %d elements: joined to\n%x, want\n%x", f, n, back, src)
			}
		}
	}
}

// The map of zeros has a bit for each element, set if one of the element's bits is.
func TestMapIsThePlainOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, w := range []int{2, 4, 8} {
		for n := range 200 {
			b := make([]byte, n*w)
			for i := range n {
				if r.IntN(2) == 0 {
					b[i*w+r.IntN(w)] = 1 << r.IntN(8)
				}
			}
			m := make([]byte, mapLen(n))
			left := mapZeros(m, b, w)
			packed := make([]byte, left*w)
			pack(packed, b, m, w)
			var want []byte
			for i := range n {
				e := b[i*w : (i+1)*w]
				zero := bytes.Count(e, []byte{0}) == w
				if !zero {
					want = append(want, e...)
				}
				if zero == (m[i/8]>>(i%8)&1 == 1) {
					t.Fatalf("width %d: element %d of %d is %x, but its bit is %d", w, i, n, e, m[i/8]>>(i%8)&1)
				}
			}
			if !bytes.Equal(packed, want) {
				t.Fatalf("width %d: %d elements packed to\n%x, want\n%x", w, n, packed, want)
			}
			back := bytes.Repeat([]byte{0xff}, len(b))
			if unpack(back, packed, m, w); !bytes.Equal(back, b) {
				t.Fatalf("width %d: %d elements unpacked to\n%x, want\n%x", w, n, back, b)
			}
		}
	}
}

// Four bits hold exponents less than fifteen above the base, and escapes the rest, for every base.
func TestFourBitsIsThePlainOne(t *testing.T) {
	for base := range maxBase + 1 {
		for x := range 256 {
			word, b := uint64(x)*ones, uint64(base)*ones
			v, e := fourBits(word, b)
			want, escapes := uint64(x-base), uint64(0)
			if d := x - base; d < 0 || d >= escape {
				want, escapes = escape, highs
			}
			if v != want*ones || e != escapes {
				t.Fatalf("exponent %d over base %d: %x with escapes %x, want %x with %x", x, base, v, e, want*ones, escapes)
			}
		}
	}
}

// The sample of a plane of random bytes says that it is not worth coding; that of a plane of few values says its cost.
func TestSampleEstimates(t *testing.T) {
	var s sample
	for seed := range uint64(50) {
		s.take(formBytes, codectest.Random.Fill(tensor.Uint8, 1<<16, seed))
		if bits, _ := s.bits(0); bits < worthBits {
			t.Errorf("seed %d: random bytes are estimated at %.2f bits", seed, bits)
		}
	}
	few := make([]byte, 1<<16)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range few {
		few[i] = byte(r.IntN(8))
	}
	s.take(formBytes, few)
	if bits, symbols := s.bits(0); bits < 2.95 || bits > 3.05 || symbols != 8 {
		t.Errorf("eight values alike: %.2f bits, %d values", bits, symbols)
	}
}

// The obvious decision for a plane at level fast is the one by its bits, and most planes of dense gradients have one.
func TestObvious(t *testing.T) {
	require.OneGoroutine(t)
	var s sample
	obviousPlanes := 0
	for _, k := range codectest.Kinds() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Int32, tensor.Uint8} {
			for seed := range uint64(5) {
				for _, n := range []int{sampleMax, sampleMax + 1, 1 << 14} {
					f := formOf(d)
					s.take(f, k.Fill(d, n, seed))
					for i := range f.width() {
						exponent := i == f.width()-1 && (f == formFloat16 || f == formFloat32)
						c, ok := s.obvious(i, exponent)
						if want := s.byBits(i, n, Fast, exponent); ok && c != want {
							t.Errorf("%v, %v, seed %d: plane %d of %d is taken for %+v, and is %+v", k, d, seed, i, n, c, want)
						}
						if ok && k == codectest.Gaussian {
							obviousPlanes++
						}
					}
				}
			}
		}
	}
	if obviousPlanes < 5*3*(4+2) {
		t.Errorf("%d planes of dense values are obvious", obviousPlanes)
	}
}

// A sample counts the same of two elements at a time as of one.
func TestSampleCounts(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for n := range 70 {
			b := codectest.Special.Fill(d, n, uint64(n))
			f, w := formOf(d), d.Size()
			var s, one sample
			s.take(f, b)
			for i := range n {
				one.run(f, b[i*w:][:w])
			}
			if s.count != one.count || s.n != one.n || s.zeros != one.zeros {
				t.Fatalf("%d elements of %v are counted otherwise than one after another", n, d)
			}
		}
	}
}
