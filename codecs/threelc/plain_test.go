package threelc

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// Section 3 of the paper, word for word and slowly; the fast forms must give its bits.

// plainQuantize is equations (1) and (2). TensorFlow's round takes ties to even.
func plainQuantize(T []float32, s float32) (M float32, q []int) {
	for _, t := range T {
		M = max(M, float32(math.Abs(float64(t))))
	}
	M *= s
	q = make([]int, len(T))
	for i, t := range T {
		if M > 0 {
			q[i] = int(math.RoundToEven(float64(t / M)))
		}
	}
	return M, q
}

// plainQuartic is section 3.2, steps 1 to 6.
func plainQuartic(q []int) []byte {
	var digits []byte
	for _, v := range q {
		digits = append(digits, byte(v+1))
	}
	for len(digits)%5 > 0 {
		digits = append(digits, 0)
	}
	p := len(digits) / 5
	out := make([]byte, p)
	for j := range out {
		out[j] = digits[j]*81 + digits[p+j]*27 + digits[2*p+j]*9 + digits[3*p+j]*3 + digits[4*p+j]
	}
	return out
}

// plainZeroRun is section 3.3.
func plainZeroRun(a []byte) []byte {
	out := []byte{}
	for len(a) > 0 {
		k := 0
		for k < 14 && k < len(a) && a[k] == 121 {
			k++
		}
		if k >= 2 {
			out, a = append(out, byte(243+k-2)), a[k:]
		} else {
			out, a = append(out, a[0]), a[1:]
		}
	}
	return out
}

// plainUnpack is the way back of both, and equation (3); nil if the lengths are wrong.
func plainUnpack(runs []byte, n int, M float32) []float32 {
	var a []byte
	for _, b := range runs {
		if b < 243 {
			a = append(a, b)
			continue
		}
		for range b - 241 {
			a = append(a, 121)
		}
	}
	p := (n + 4) / 5
	if len(a) != p {
		return nil
	}
	out := make([]float32, 5*p)
	for j, b := range a {
		for k, power := range [5]byte{81, 27, 9, 3, 1} {
			if q := int(b/power%3) - 1; q != 0 {
				out[k*p+j] = M * float32(q)
			}
		}
	}
	return out[:n]
}

// plainSum is Figure 3 around one block: the encoding of x+e, and the new e, for elements of float32.
func plainSum(x, e []float32, s float32) (M float32, packed []byte, left []float32) {
	T := make([]float32, len(x))
	for i := range x {
		T[i] = x[i] + e[i]
	}
	M, q := plainQuantize(T, s)
	left = make([]float32, len(x))
	for i := range T {
		left[i] = T[i] - M*float32(q[i])
	}
	return M, plainQuartic(q), left
}

func checkAgainstPlain(t *testing.T, x, e []float32, s float32) {
	t.Helper()
	M, want, wantLeft := plainSum(x, e, s)
	if !(M <= math.MaxFloat32) {
		return
	}
	got, left := make([]byte, len(want)), append([]float32(nil), e...)
	quantizeSum(got, x, left, threshold(M), M)
	if string(got) != string(want) {
		t.Fatalf("s = %v, M = %v: quantizeSum gives % x, the paper % x, of %x + %x", s, M, got, want, x, e)
	}
	for i := range left {
		if math.Float32bits(left[i]) != math.Float32bits(wantLeft[i]) {
			t.Fatalf("s = %v, M = %v: residual %d of %x + %x is %x, not %x", s, M, i, x[i], e[i], left[i], wantLeft[i])
		}
	}
	M, q := plainQuantize(x, s)
	if want = plainQuartic(q); M <= math.MaxFloat32 {
		if quantize(got, x, threshold(M)); string(got) != string(want) {
			t.Fatalf("s = %v, M = %v: quantize gives % x, the paper % x, of %x", s, M, got, want, x)
		}
	}
}

// FuzzQuantize compares the fast quantization, which divides nothing and rounds nothing, with the equations.
func FuzzQuantize(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		b := make([]byte, 8*n)
		for i := range 2 * n {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(r.NormFloat64())))
		}
		f.Add(uint16(n*1000), b)
	}
	f.Fuzz(func(t *testing.T, s16 uint16, b []byte) {
		s := min(1+float32(s16)/65536, float32(maxS))
		n := len(b) / 8
		x, e := make([]float32, n), make([]float32, n)
		for i := range n {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i:]))
			e[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4:]))
			if e[i] == 0 {
				e[i] = 0 // never -0: see TestResidualIsExact
			}
			if sum := x[i] + e[i]; !(math.Abs(float64(x[i])) <= math.MaxFloat32 && math.Abs(float64(sum)) <= math.MaxFloat32) {
				return // encoders ask absmax first
			}
		}
		asmtest.Do(t, func(simd.Tier) { checkAgainstPlain(t, x, e, s) })
	})
}

// The float32 next to M/2 on either side, for every exponent and random mantissas, is rounded as equation (2) rounds
// it.
func TestQuantizeNextToHalf(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	inf := float32(math.Inf(1))
	for exponent := range uint32(255) {
		for range 300 {
			largest := math.Float32frombits(exponent<<23 | r.Uint32()>>9)
			s := min(1+r.Float32(), float32(maxS))
			h := scale(largest, s) / 2
			up, down := math.Nextafter32(h, inf), math.Nextafter32(h, -inf)
			x := []float32{largest, h, up, down, -h, -up, -down}
			for i := range x { // up may be over the largest
				x[i] = max(min(x[i], largest), -largest)
			}
			checkAgainstPlain(t, x, make([]float32, len(x)), s)
		}
	}
}

// Every number of values: whole bytes, padding, and less than a byte.
func TestQuantizeEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for n := range 400 {
		x, e := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], e[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
		}
		asmtest.Do(t, func(simd.Tier) { checkAgainstPlain(t, x, e, 1.25) })
	}
}

// FuzzShorten compares zero-run encoding with the plain form, in place and not, and undoes it.
func FuzzShorten(f *testing.F) {
	for n := range 50 {
		f.Add(sparse(100+9*n, n), byte(0))
		f.Add(make([]byte, n), byte(0))
		f.Add(append(make([]byte, n), 1, 0, 0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0), byte(1))
	}
	f.Fuzz(func(t *testing.T, a []byte, flip byte) {
		for i := range a {
			a[i] = (a[i] ^ flip + fiveZeros) % firstRun // zeros of the fuzzer's are zeros here
		}
		want := plainZeroRun(a)
		asmtest.Do(t, func(simd.Tier) {
			region := make([]byte, lead+len(a))
			copy(region[lead:], a)
			if n := shorten(region, region[lead:]); string(region[:n]) != string(want) {
				t.Fatalf("% x: in place % x, want % x", a, region[:n], want)
			}
			apart := make([]byte, len(a))
			if n := shorten(apart, a); string(apart[:n]) != string(want) {
				t.Fatalf("% x: % x, want % x", a, apart[:n], want)
			}
			for _, n := range []int{5 * len(a), max(5*len(a)-3, 0)} {
				checkUnpack(t, want, n, 1.5)
			}
		})
	})
}

// sparse returns n bytes; about one in every is not zero.
func sparse(n, every int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), uint64(every)))
	b := make([]byte, n)
	for i := range b {
		if r.IntN(1+every) == 0 {
			b[i] = byte(r.IntN(firstRun))
		}
	}
	return b
}

// FuzzUnpack compares the decoder with the plain form on any bytes, for as many values as they stand for and for more
// or fewer.
func FuzzUnpack(f *testing.F) {
	for _, more := range []int16{0, 1, -1, -4, -5, 5, 80, -200, 3000} {
		f.Add([]byte{121, 243, 255, 0, 242}, more)
		f.Add([]byte{250}, more)
		f.Add(append(bytes.Repeat([]byte{255, 0, 242, 244}, 80), 7), more)
		f.Add(bytes.Repeat([]byte{254}, 100), more)
		f.Add(bytes.Repeat([]byte{0, 242}, 100), more)
		f.Add(append(bytes.Repeat([]byte{121, 121, 243, 80}, 100), 255), more)
	}
	f.Fuzz(func(t *testing.T, runs []byte, more int16) {
		n := int(more)
		for _, b := range runs {
			n += 5 * int(runLength[b])
		}
		asmtest.Do(t, func(simd.Tier) { checkUnpack(t, runs, max(n, 0), 0.75) })
	})
}

func checkUnpack(t *testing.T, runs []byte, n int, M float32) {
	t.Helper()
	x := make([]float32, n)
	used, ok := unpack(x, runs, M)
	checkUnpacked(t, x, runs, used, ok, M)
	if tile() > 0 {
		x = make([]float32, n)
		used, ok = unpackPieces(x, runs, math.Float32bits(-M), reached{}) // as unpackRuns
		checkUnpacked(t, x, runs, used, ok, M)
	}
}

// checkUnpacked fails unless the plain form also decodes used bytes of runs to x if ok, and fails if not.
func checkUnpacked(t *testing.T, x []float32, runs []byte, used int, ok bool, M float32) {
	t.Helper()
	want := plainUnpack(runs[:used], len(x), M)
	if ok != (want != nil) {
		t.Fatalf("unpack of %d values from % x says %v after %d bytes", len(x), runs, ok, used)
	}
	for i := range want {
		if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
			t.Fatalf("value %d of %d from % x is %v, want %v", i, len(x), runs, x[i], want[i])
		}
	}
}
