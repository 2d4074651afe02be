package tensor

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// encode returns v as elements of type d.
func encode(d DType, v []float64) []byte {
	b := make([]byte, len(v)*d.Size())
	if d == Float64 {
		for i, x := range v {
			binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(x))
		}
		return b
	}
	f := make([]float32, len(v))
	for i, x := range v {
		f[i] = float32(x)
	}
	FromFloat32(b, f, d)
	return b
}

func gauss(rnd *rand.Rand, n int, scale float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = scale * rnd.NormFloat64()
	}
	return v
}

// uniform returns values such as those of a layer before training.
func uniform(rnd *rand.Rand, n int, bound float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = bound * (2*rnd.Float64() - 1)
	}
	return v
}

// spiky returns values with the norm of gauss, nine tenths of it in a tenth of the values, like gradients of mostly
// zero inputs.
func spiky(rnd *rand.Rand, n int, scale float64) []float64 {
	v := gauss(rnd, n, scale*math.Sqrt(0.1/0.9))
	for i := range v[:n/10] {
		v[i] = 3 * scale * rnd.NormFloat64()
	}
	return v
}

// plus returns a*x + b*y.
func plus(a float64, x []float64, b float64, y []float64) []float64 {
	v := make([]float64, len(x))
	for i := range v {
		v[i] = a*x[i] + b*y[i]
	}
	return v
}

// plausible reports whether block is a plausible next value after last.
func plausible(d DType, block, last []byte) bool {
	c, ok := compare(d, block, last)
	return ok && c.plausible()
}

func TestPlausible(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	last, other := gauss(rnd, 4001, 0.01), gauss(rnd, 4001, 0.01)
	zeros := make([]float64, len(last))
	nan := append([]float64{math.NaN()}, last[1:]...)
	inf := append([]float64{math.Inf(1)}, last[1:]...)
	for _, c := range []struct {
		name        string
		block, last []float64
		want        bool
	}{
		{"a fresh gradient", other, last, true},
		{"one three times as large", plus(3, other, 0, last), last, true},
		{"one a third as large", plus(1.0/3, other, 0, last), last, true},
		{"one five times as large", plus(5, other, 0, last), last, false},
		{"one a fifth as large", plus(0.2, other, 0, last), last, false},
		{"a gradient of nearly all data", plus(0.3, other, 1, last), last, true},
		{"weights after some steps", plus(0.1, other, 1, last), last, false},
		{"the same again", last, last, false},
		{"the first weights after gradients", plus(20, other, 0, last), last, false},
		{"the first weights, twice as large as gradients", uniform(rnd, 4001, 0.035), spiky(rnd, 4001, 0.01), false},
		{"gradients after weights of their norm", spiky(rnd, 4001, 0.01), uniform(rnd, 4001, 0.017), true},
		{"spikes after an even gradient", spiky(rnd, 4001, 0.03), last, true},
		{"an even gradient, not larger, after spikes", last, spiky(rnd, 4001, 0.01), true},
		{"a spiky gradient", spiky(rnd, 4001, 0.01), spiky(rnd, 4001, 0.01), true},
		{"zeros", zeros, last, false},
		{"after zeros", last, zeros, false},
		{"NaN", nan, last, false},
		{"infinity", inf, last, false},
		{"after infinity", last, inf, false},
		{"nothing before", last, nil, false},
		{"another length", last, last[1:], false},
		{"nothing", nil, nil, false},
	} {
		for _, d := range []DType{Float32, Float64, Float16, BFloat16} {
			if got := plausible(d, encode(d, c.block), encode(d, c.last)); got != c.want {
				t.Errorf("%s, %v: %v, want %v", c.name, d, got, c.want)
			}
		}
	}
	b := encode(Float32, last)
	for _, d := range []DType{NoDType, Int32, Uint8, Int64, DType(200)} {
		if plausible(d, b, encode(Float32, other)) {
			t.Errorf("elements of type %v are plausible", d)
		}
	}
}

// The bounds lie where the constants say.
func TestPlausibleBounds(t *testing.T) {
	one := func(x float64) []byte { return encode(Float64, []float64{x, 0}) }
	row := func(ones int, norm float64) []byte {
		v := make([]float64, 16)
		for i := range ones {
			v[i] = norm / math.Sqrt(float64(ones)) * []float64{1, -1}[i%2]
		}
		return encode(Float64, v)
	}
	two := func(x, y float64) []byte { return encode(Float64, []float64{x, y}) }
	for _, c := range []struct {
		block, last []byte
		want        bool
	}{
		{one(4), one(1), true}, {one(4.01), one(1), false},
		{one(-1), one(4), true}, {one(-1), one(4.01), false},
		{two(1, 0), two(1, 0.2001), true}, {two(1, 0), two(1, 0.1999), false},
		// the mean magnitude over the root mean square is the root of how many of 16 differ from 0, over 4
		{row(16, 1.51), row(7, 1), false}, {row(16, 1.49), row(7, 1), true}, {row(16, 1.51), row(8, 1), true},
		{row(10, 1.51), row(4, 1), false}, {row(8, 1.51), row(3, 1), true}, {row(7, 1), row(16, 1.51), true},
	} {
		if got := plausible(Float64, c.block, c.last); got != c.want {
			t.Errorf("%x after %x: %v", c.block, c.last, got)
		}
	}
}

// A tensor has no trust at first. Three fresh values in a row win it, and the third still travels exactly. After a loss
// of trust twice as many are needed than before, but for the first one, and so on.
func TestTrust(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var trust Trust
	last := encode(Float32, gauss(rnd, 1000, 1))
	kept := make([]byte, KeptSize(Float32, len(last)))
	Keep(Float32, kept, last)
	next := func(keep, fresh float64) bool {
		v := make([]float32, 1000)
		ToFloat32(v, last, Float32)
		for i := range v {
			v[i] = float32(keep)*v[i] + float32(fresh*rnd.NormFloat64())
		}
		b := make([]byte, len(last))
		FromFloat32(b, v, Float32)
		ok := trust.Judge(Float32, b, kept, nil) == Fits
		last = b
		return ok
	}
	for i, s := range []struct {
		keep, fresh float64
		want        bool
	}{
		{0, 1, false}, {0, 1, false},
		{0.9, 0.4, false},                           // plausible, but not fresh: the count begins again
		{0, 1, false}, {0, 1, false}, {0, 1, false}, // three fresh values win trust
		{0, 1, true}, {0, 1, true},
		{1, 0.05, false},                            // like weights: trust is lost
		{0, 1, false}, {0, 1, false}, {0, 1, false}, // three fresh values win it back
		{0, 1, true}, {0.9, 0.4, true},
		{1, 0.05, false}, {0, 1, false}, {0, 1, false},
		{0.9, 0.4, false}, // plausible, but not fresh: the count begins again
		{0, 1, false}, {0, 1, false}, {0, 1, false}, {0, 1, false}, {0, 1, false}, {0, 1, false}, {0, 1, true},
		{1, 0.05, false}, {0, 1, false}, {8, 0.1, false}, // a value that is not plausible does not restore trust
		{0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false},
		{0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false}, {0, 0.01, false},
		{0, 0.01, false}, {0, 0.01, true},
	} {
		if got := next(s.keep, s.fresh); got != s.want {
			t.Fatalf("value %d: %v, want %v", i, got, s.want)
		}
	}
	const need = 12                 // after three losses
	for range goodValues*need - 2 { // one has passed above
		if !next(0, 0.01) {
			t.Fatal("trust is lost without a reason")
		}
	}
	lose := func() (exact int) {
		next(1, 0.0005)
		for !next(0, 0.01) {
			exact++
		}
		return exact
	}
	if n := lose(); n != 2*need {
		t.Errorf("before all is made good: %d values in a row win trust back, want %d", n, 2*need)
	}
	for range goodValues*2*need - 1 {
		next(0, 0.01)
	}
	if n := lose(); n != freshValues {
		t.Errorf("after many good values: %d values in a row win trust back, want %d", n, freshValues)
	}
	if trust.Judge(Float32, last, nil, nil) == Fits || !trust.earned {
		t.Error("nothing to compare with: it may not pass, nor cost trust")
	}
	if !next(0, 0.01) {
		t.Error("trust was lost for lack of a value to compare with")
	}
}

// The fast sums and the plain ones agree, at every scale that floats have.
func TestFastSumsEqualPlainOnes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, scale := range []float64{1e-44, 1e-30, 1e-22, 1e-18, 1e-10, 1, 1e10, 1e18, 1e25, 1e37} {
		for _, n := range []int{1, 3, 4, 511, 512, 513, 5000} {
			x, y := make([]float32, n), make([]float32, n)
			for i := range x {
				x[i], y[i] = float32(scale*rnd.NormFloat64()), float32(scale*rnd.NormFloat64())
			}
			var fast, plain change
			fast.add(x, y)
			plain.addWide(x, y)
			for _, p := range [][2]float64{{fast.norm, plain.norm}, {fast.last, plain.last}, {fast.diff, plain.diff}, {fast.abs * fast.abs / float64(n), plain.abs * plain.abs / float64(n)}} {
				if math.Abs(p[0]-p[1]) > 1e-4*(plain.norm+plain.last) {
					t.Errorf("scale %g, %d elements: %+v, want %+v", scale, n, fast, plain)
				}
			}
		}
	}
}

// Squares beyond the range of float32 count too, and so do single values.
func TestSquaredNorms(t *testing.T) {
	for _, scale := range []float32{1e-30, 1, 1e30} {
		for _, n := range []int{0, 1, 15, 16, 17, 600} {
			x, y := make([]float32, n), make([]float32, n+1)
			var wantX, wantY float64
			for i := range x {
				x[i], y[i] = scale*float32(i+1), -2*scale
				wantX += float64(x[i]) * float64(x[i])
				wantY += float64(y[i]) * float64(y[i])
			}
			y[n] = scale // one too many
			gotX, gotY := SquaredNorms(x, y)
			if math.Abs(gotX-wantX) > 1e-5*wantX || math.Abs(gotY-wantY) > 1e-5*wantY {
				t.Errorf("%d values of %g: %g and %g, want %g and %g", n, scale, gotX, gotY, wantX, wantY)
			}
		}
	}
}

// normal is gauss in float32.
func normal(rnd *rand.Rand, n int, scale float64) []float32 {
	v := make([]float32, n)
	for i, x := range gauss(rnd, n, scale) {
		v[i] = float32(x)
	}
	return v
}

// The norm of a sum counts every element, also where the two values nearly cancel out, and where squares are beyond the
// range of float32.
func TestSumNorms(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, scale := range []float64{0, 1e-30, 1e-3, 1, 1e30} {
		for _, apart := range []float64{0, 1e-6, 0.05, 1, 20} { // from -x
			for _, n := range []int{0, 1, 15, 16, 17, 600, 5000} {
				x, y := normal(rnd, n, scale), normal(rnd, n+1, scale*apart)
				var wantX, wantSum float64
				for i, v := range x {
					y[i] -= v
					sum := float64(v) + float64(y[i])
					wantX += float64(v) * float64(v)
					wantSum += sum * sum
				}
				gotX, gotSum := SumNorms(x, y)
				if !(math.Abs(gotX-wantX) <= 1e-5*wantX) || !(math.Abs(gotSum-wantSum) <= 1e-4*wantSum) {
					t.Errorf("%d values of %g, %g apart: %g and %g, want %g and %g", n, scale, apart, gotX, gotSum, wantX, wantSum)
				}
			}
		}
	}
}

// BenchmarkSumNorms is of the elements of a block whose loss is measured.
func BenchmarkSumNorms(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 6))
	x, y := normal(rnd, 1<<16, 1), normal(rnd, 1<<16, 3)
	b.SetBytes(4 << 16)
	for b.Loop() {
		SumNorms(x, y)
	}
}

// Trust of a block over others is the least of theirs.
func TestJointTrust(t *testing.T) {
	earned, good, none, near, lost := Trust{earned: true}, Trust{earned: true, need: 3, good: 40}, Trust{}, Trust{fresh: 2}, Trust{need: 6, fresh: 1}
	for _, c := range []struct{ a, b, want Trust }{
		{earned, earned, earned}, {earned, none, none}, {earned, near, near}, {near, none, none}, {near, lost, lost},
		{earned, lost, lost}, {good, lost, lost}, {good, earned, Trust{earned: true, need: 3}},
	} {
		if got, back := c.a.Joint(c.b), c.b.Joint(c.a); got != c.want || back != c.want {
			t.Errorf("%+v and %+v: %+v and %+v, want %+v", c.a, c.b, got, back, c.want)
		}
	}
}

func BenchmarkPlausible(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 6))
	x, y := gauss(rnd, 1<<18, 1), gauss(rnd, 1<<18, 1)
	for _, d := range []DType{Float32, BFloat16} {
		block, last := encode(d, x), encode(d, y)
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(int64(len(block)))
			for b.Loop() {
				if !plausible(d, block, last) {
					b.Fatal("not plausible")
				}
			}
		})
	}
	copied := encode(Float32, x)
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(copied)))
		src := encode(Float32, y)
		for b.Loop() {
			copy(copied, src)
		}
	})
}

// A tensor whose role has more than the user's word for it is trusted at once, but not again once trust was lost.
func TestPresumedTrust(t *testing.T) {
	fits, same := change{norm: 1, last: 1, diff: 1, abs: 50, lastAbs: 50, n: 100}, change{norm: 1, last: 1, abs: 50, lastAbs: 50, n: 100}
	var trust Trust
	trust.Presume()
	if !trust.judge(fits.plausible(), fits.fresh()) {
		t.Error("presumed trust is none")
	}
	if trust.judge(same.plausible(), same.fresh()) {
		t.Error("a value that does not change is trusted")
	}
	for i := range 2 * freshValues {
		trust.Presume()
		if got, want := trust.judge(fits.plausible(), fits.fresh()), i >= freshValues; got != want {
			t.Errorf("value %d after trust was lost is trusted: %v, want %v", i, got, want)
		}
	}
}
