package fastsgd

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/tensor"
)

// inputs are values of every shape: normal, heavy-tailed, sparse, subnormal, of all magnitudes that a float32 has.
func inputs(n int) map[string][]float32 {
	all := map[string][]float32{}
	for _, k := range []codectest.Kind{codectest.Zeros, codectest.Constant, codectest.Gaussian, codectest.Heavy,
		codectest.Sparse, codectest.Rows, codectest.Finite} {
		x := make([]float32, n)
		tensor.ToFloat32(x, k.Fill(tensor.Float32, n, 1), tensor.Float32)
		all[k.String()] = x
	}
	r := rand.New(rand.NewPCG(1, 2))
	wide, tiny, large := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range wide {
		wide[i] = float32(math.Copysign(math.Exp2(r.Float64()*270-145), r.Float64()-0.5))
		tiny[i] = math.Float32frombits(r.Uint32() & 0x800000ff)
		large[i] = math.Float32frombits(0x7f7fffff - r.Uint32N(1<<20))
	}
	all["two"] = []float32{math.MaxFloat32, 1}
	all["wide"], all["tiny"], all["large"] = wide, tiny, large
	all["one"] = []float32{0, 0, -3.7, 0}
	return all
}

// configs are the configurations of section 4.2 and the extremes of Config.
func configs() []Config {
	return []Config{{}, {B: 1.03625}, {B: 1.1125, Tau: 64}, {B: 2, Tau: 300}, {B: 1.0001, Tau: 4096}, {B: 16, Tau: 40}}
}

func eachInput(t *testing.T, f func(t *testing.T, c Config, x []float32)) {
	for _, c := range configs() {
		for name, x := range inputs(3000) {
			t.Run(fmt.Sprintf("%v/%s", mustNew(t, c), name), func(t *testing.T) {
				if c.B == 0 {
					c.B = defaultB
				}
				if c.Tau == 0 {
					c.Tau = defaultTau
				}
				f(t, c, x)
			})
		}
	}
}

// Equation (2): R = sum/|v| is at least 1, and the sum is that of the magnitudes, or less than one part in 2^29 over
// it.
func TestReciprocalMapper(t *testing.T) {
	for name, x := range inputs(3000) {
		exact := new(big.Float).SetPrec(400)
		for _, v := range x {
			exact.Add(exact, big.NewFloat(math.Abs(float64(v))))
		}
		got, ok := sumOf(x)
		if !ok {
			t.Fatalf("%s: not finite", name)
		}
		sum := new(big.Float).SetPrec(400).SetFloat64(got)
		if sum.Cmp(exact) < 0 {
			t.Errorf("%s: the sum %v is less than %v", name, sum, exact)
		}
		slack := new(big.Float).SetPrec(400).Mul(exact, big.NewFloat(1+0x1p-29))
		if sum.Cmp(slack) > 0 {
			t.Errorf("%s: the sum %v is more than %v", name, sum, exact)
		}
		for _, v := range x {
			if v != 0 && got/math.Abs(float64(v)) < 1 {
				t.Errorf("%s: R(%v) = %v", name, v, got/math.Abs(float64(v)))
			}
		}
	}
	for _, x := range [][]float32{{1, 2, 3, 4, 5}, {0.1, -0.7, 0.25}, {3e38, 3e38, -3e38}, {1e-45}, {1 << 23, 0.5, 0.5, -1}} {
		want := 0.0
		for _, v := range x {
			want += math.Abs(float64(v))
		}
		if got, _ := sumOf(x); got != want {
			t.Errorf("%v: sum %v, want %v exactly", x, got, want)
		}
	}
}

// Equation (3): L = ⌈log_b R⌉, here by arithmetic of 500 bits. Within 1e-12 of a power of b either side is right, as
// sums and powers are rounded.
func TestLogarithmQuantization(t *testing.T) {
	eachInput(t, func(t *testing.T, c Config, x []float32) {
		sum, _ := sumOf(x)
		if sum == 0 {
			return
		}
		var s scale
		s.set(sum, c.B, c.Tau)
		b := new(big.Float).SetPrec(500).SetFloat64(c.B)
		power := []*big.Float{new(big.Float).SetPrec(500).SetInt64(1)} // of b
		for range c.Tau {
			power = append(power, new(big.Float).SetPrec(500).Mul(power[len(power)-1], b))
		}
		for _, v := range x[:min(len(x), 400)] {
			a := math.Abs(float64(v))
			if v == 0 || float32(a) < s.T[c.Tau] {
				continue
			}
			got := s.level(float32(a))
			// b^(L-1) < sum/a <= b^L, as products with a
			over := func(L int, factor float64) bool { // whether b^L·a·factor >= sum
				p := new(big.Float).SetPrec(500).Mul(power[L], big.NewFloat(a))
				return p.Mul(p, big.NewFloat(factor)).Cmp(big.NewFloat(sum)) >= 0
			}
			if !over(got, 1+1e-12) || got > 0 && over(got-1, 1-1e-12) {
				t.Errorf("%v of %v: L = %d", v, sum, got)
			}
		}
	})
}

// X[L] is X[L-1]/b, rounded up, and not by more than it must be; T[L] is X[L] so rounded to a float32.
func TestScaleIsRoundedUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rat := func(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }
	for range 2000 {
		x, b := math.Exp2(r.Float64()*300-150), 1+r.Float64()
		q := ceilQuotient(x, b)
		exact := new(big.Rat).Quo(rat(x), rat(b))
		if rat(q).Cmp(exact) < 0 || rat(math.Nextafter(q, 0)).Cmp(exact) >= 0 {
			t.Errorf("%v/%v is rounded to %v", x, b, q)
		}
		if y := ceil32(x); y <= math.MaxFloat32 && (float64(y) < x || float64(math.Nextafter32(y, 0)) >= x) {
			t.Errorf("%v is rounded to %v", x, y)
		}
	}
	if y := ceil32(math.MaxFloat32 * (1 + 0x1p-40)); !math.IsInf(float64(y), 1) {
		t.Errorf("what is over the greatest float32 is rounded to %v", y)
	}
}

// Figure 2: with b = 2, R = 6.1 becomes L = 3; a reciprocal that is a power of b becomes its exponent.
func TestFigure2(t *testing.T) {
	var s scale
	s.set(6.1, 2, 128)
	if L := s.level(1); L != 3 {
		t.Errorf("R = 6.1: L = %d, want 3", L)
	}
	for L := range 20 {
		s.set(math.Exp2(float64(L)), 2, 128)
		if got := s.level(1); got != L {
			t.Errorf("R = 2^%d: L = %d", L, got)
		}
	}
}

// Section 3.2: decoded magnitudes are in [v/b, v], never an over-estimate, with the sign kept; a value that is not sent
// is below the early stop sum/b^τ of Algorithm 1, line 2.
func TestDeliveredValues(t *testing.T) {
	eachInput(t, func(t *testing.T, c Config, x []float32) {
		_, y := deliver(t, mustNew(t, c), x)
		sum, _ := sumOf(x)
		for i, v := range x {
			a, d := math.Abs(float64(v)), math.Abs(float64(y[i]))
			if y[i] == 0 {
				if v != 0 && a*math.Pow(c.B, float64(c.Tau)) > sum*(1+1e-9) {
					t.Fatalf("value %d: %v of %v is not sent", i, v, sum)
				}
				continue
			}
			if math.Signbit(float64(v)) != math.Signbit(float64(y[i])) {
				t.Fatalf("value %d: %v is delivered as %v", i, v, y[i])
			}
			// d·b >= a over the reals: the one rounding of FMA keeps the sign
			if d > a || math.FMA(d, c.B, -a) < 0 {
				t.Fatalf("value %d: %v is delivered as %v, not within a factor of %v below", i, v, y[i], c.B)
			}
		}
	})
}

// At most b^τ values are sent, since each is at least sum/b^τ.
func TestAtMostBToTheTauAreKept(t *testing.T) {
	x := make([]float32, 1<<16)
	for i := range x {
		x[i] = 0.1
	}
	more := []Config{{B: 1.1, Tau: 10}, {B: 2, Tau: 1}, {B: 2, Tau: 10}, {B: 2, Tau: 15}, {B: 2, Tau: 16}}
	for _, c := range slices.Concat(configs(), more) {
		v, err := NewValues(c.B, c.Tau)
		if err != nil {
			t.Fatal(err)
		}
		limit := math.Pow(v.b, float64(v.tau))
		for n := 1; n <= len(x); n = n*5/4 + 1 {
			_, kept, err := v.Append(nil, nil, x[:n])
			if err != nil {
				t.Fatal(err)
			}
			if float64(len(kept)) > limit {
				t.Errorf("b = %v, τ = %d: %d values kept of %d", v.b, v.tau, len(kept), n)
			}
			if want := float64(n) < limit*(1-1e-6); want && len(kept) != n {
				t.Errorf("b = %v, τ = %d: %d kept of %d values alike", v.b, v.tau, len(kept), n)
			}
		}
	}
}

// A single value is the whole sum: L is 0, and its sign and its last bit survive.
func TestSingleValue(t *testing.T) {
	for _, c := range append(configs(), Config{Tau: 1}) {
		for _, v := range []float32{1, -1, 0.1, -0.1, math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45} {
			x := make([]float32, 50)
			x[31] = v
			if _, y := deliver(t, mustNew(t, c), x); y[31] != v {
				t.Errorf("%v: %v is delivered as %v", mustNew(t, c), v, y[31])
			}
		}
	}
}

// All levels of both signs, 2τ of them, have codes of their own: in a byte for τ = 128.
func TestEveryLevelHasACode(t *testing.T) {
	v, err := NewValues(1.1, 128)
	if err != nil {
		t.Fatal(err)
	}
	var s scale
	s.set(1, 1.1, 128)
	var x []float32 // of each level, with both signs
	for L := 1; L <= 128; L++ {
		x = append(x, s.T[L], -s.T[L])
	}
	kept := make([]uint64, len(x))
	for i := range kept {
		kept[i] = uint64(i)
	}
	b := v.appendCodes(nil, &s, 1, x, kept)
	if len(b) != sumLen+len(x) {
		t.Errorf("%d bytes for %d values", len(b), len(x))
	}
	y := make([]float32, len(x))
	if _, err := v.Decode(y, b); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if x[i] != y[i] {
			t.Errorf("level %d: %v is delivered as %v", i/2+1, x[i], y[i])
		}
	}
}

// Section 3.4: a value takes a byte, and its key as much as the key encoder takes for it; 8 + log2(Dm/d) + l bits is
// the paper's expectation, where all gaps are alike.
func TestSpaceCost(t *testing.T) {
	x := make([]float32, 1<<14)
	for i := 15; i < len(x); i += 16 {
		x[i] = float32(1 + i%7)
	}
	encoded, _ := deliver(t, mustNew(t, Config{}), x)
	var at []uint64
	for i, v := range x {
		if v != 0 {
			at = append(at, uint64(i))
		}
	}
	d := len(at)
	if want := 2 + sumLen + d + len(keys.BitGrain{}.Append(nil, at)); len(encoded) != want {
		t.Errorf("%d bytes, want %d", len(encoded), want)
	}
	// The gap of 16 needs 5 bits where the paper's log2(16) has 4, since 16 itself is to be written.
	if want := 2 + sumLen + 1 + d*(8+5+2)/8; len(encoded) != want {
		t.Errorf("%d bytes, want %d", len(encoded), want)
	}
}
