package countsketch

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

func mustHash(t testing.TB, c Config, coordinates int) *Hash {
	t.Helper()
	h, err := NewHash(c, coordinates)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func sketchOf(h *Hash, x []float32) *Sketch {
	s := New(h)
	s.Insert(0, x)
	return s
}

func sameCells(t *testing.T, a, b *Sketch) {
	t.Helper()
	for i, v := range a.Cells() {
		if w := b.Cells()[i]; math.Float32bits(v) != math.Float32bits(w) {
			t.Fatalf("cell %d of %d x %d is %v in one and %v in the other", i, a.hash.Rows, a.hash.Columns, v, w)
		}
	}
}

// sameValues takes 0 for -0: adding to 0 makes it that.
func sameValues(t *testing.T, a, b *Sketch) {
	t.Helper()
	if !slices.Equal(a.Cells(), b.Cells()) {
		t.Fatalf("%d x %d cells are not those of the other sketch", a.hash.Rows, a.hash.Columns)
	}
}

// integers are random and small: no sum of them is rounded.
func integers(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(201) - 100)
	}
	return x
}

// S(a) + S(b) = S(a+b), in memory and over the wire, bit for bit where no sum is rounded.
func TestLinear(t *testing.T) {
	const n = 100_000
	for _, c := range []Config{{5, 1000, 1}, {1, 7, 2}, {3, 1, 3}, {15, 90_001, 4}} {
		h := mustHash(t, c, n)
		a, b := integers(1, n), integers(2, n)
		sum := make([]float32, n)
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
		want := sketchOf(h, sum)
		got := sketchOf(h, a)
		for i, v := range sketchOf(h, b).cells {
			got.cells[i] += v
		}
		sameCells(t, got, want)

		wired := New(h)
		for _, x := range [][]float32{a, b} {
			encoded, err := sketchOf(h, x).Append([]byte("kept"), Float32)
			if err != nil || string(encoded[:4]) != "kept" || len(encoded) != 4+c.EncodedLen(Float32) {
				t.Fatalf("%d bytes, %v", len(encoded), err)
			}
			if err := wired.AddEncoded(encoded[4:]); err != nil {
				t.Fatal(err)
			}
		}
		sameCells(t, wired, want)

		got.Reset()
		sameCells(t, got, New(h))
	}
}

// A vector may come in pieces, in any order where sums are exact.
func TestPieces(t *testing.T) {
	const n = 150_000
	x := integers(3, n)
	for _, c := range []Config{{5, 1000, 1}, {3, 100_000, 1}} { // one with short spans, one with long
		h := mustHash(t, c, n)
		want, got := sketchOf(h, x), New(h)
		r := rand.New(rand.NewPCG(5, 5))
		cuts := []int{0, 1, 65535, 65536, 131072, n}
		for range 40 {
			cuts = append(cuts, r.IntN(n))
		}
		slices.Sort(cuts)
		for _, k := range r.Perm(len(cuts) - 1) {
			got.Insert(cuts[k], x[cuts[k]:cuts[k+1]])
		}
		sameCells(t, got, want)

		all, piece := make([]float32, n), make([]float32, n)
		want.Query(all, 0)
		for k := range cuts[1:] {
			want.Query(piece[cuts[k]:cuts[k+1]], cuts[k])
		}
		if !slices.Equal(all, piece) {
			t.Errorf("%+v: estimates depend on how the query is cut", c)
		}
	}
}

// The median of every odd number of rows, against sorting; -0 is below +0.
func TestMedians(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	zero := float32(0)
	some := []float32{-zero, zero, 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	some[0] = float32(math.Copysign(0, -1))
	for n := 1; n <= MaxRows; n += 2 {
		const width = sorted + 77
		rows, columns := make([][]int32, n), make([][]int32, width)
		for k := range rows {
			rows[k] = make([]int32, width)
			for i := range rows[k] {
				v := some[r.IntN(len(some))]
				if i%2 == 0 {
					v = float32(r.NormFloat64())
				}
				rows[k][i] = ordered(math.Float32bits(v))
				columns[i] = append(columns[i], rows[k][i])
			}
		}
		for _, column := range columns {
			slices.Sort(column)
		}
		asmtest.Do(t, func(simd.Tier) {
			var lists [MaxRows][]int32
			for k, row := range rows {
				lists[k] = slices.Clone(row)
			}
			dst := make([]float32, width)
			medians(dst, &lists, n)
			for i, column := range columns {
				if want := value(column[n/2]); math.Float32bits(dst[i]) != math.Float32bits(want) {
					t.Fatalf("the median of %d is %v, want %v", n, dst[i], want)
				}
			}
		})
	}
	for i := range some {
		for j := range some {
			a, b := some[i], some[j]
			if (ordered(math.Float32bits(a)) < ordered(math.Float32bits(b))) != (a < b || a == b && math.Signbit(float64(a)) && !math.Signbit(float64(b))) {
				t.Errorf("%v and %v are not in order", a, b)
			}
		}
	}
}

// vectors are gradients of several kinds.
func vectors(n int) map[string][]float32 {
	r := rand.New(rand.NewPCG(7, 7))
	v := map[string][]float32{}
	fill := func(name string, f func(i int) float64) {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		v[name] = x
	}
	fill("normal", func(int) float64 { return r.NormFloat64() })
	fill("heavy", func(int) float64 { return math.Copysign(math.Pow(r.ExpFloat64(), 4), r.NormFloat64()) })
	fill("flat", func(int) float64 { return 1 })
	fill("rows", func(i int) float64 { return r.NormFloat64() * float64(i/64%3) })
	fill("power law", func(i int) float64 { return math.Pow(float64(i+1), -0.8) })
	fill("one", func(i int) float64 {
		if i == n/3 {
			return 5
		}
		return 0
	})
	return v
}

func squaredNorm(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// Section 3: every estimate satisfies ĝ_i² = g_i² ± ε‖g‖², and the norm's lies within a factor of 1 ± 0.5 (Algorithm 1,
// line 1). A row is off by δ‖g‖, δ = 3/√c, in one case of 9 at most (Chebyshev), 8 of 15 rows in one of 10^5; and then
// |ĝ²-g²| <= (2δ+δ²)·‖g‖².
func TestEstimates(t *testing.T) {
	const n, columns = 30_000, 4096
	delta := 3 / math.Sqrt(columns)
	epsilon := 2*delta + delta*delta
	for name, x := range vectors(n) {
		norm := squaredNorm(x)
		for seed := range uint64(8) {
			s := sketchOf(mustHash(t, Config{15, columns, seed}, n), x)
			estimates := make([]float32, n)
			s.Query(estimates, 0)
			for i, e := range estimates {
				if diff := math.Abs(float64(e)*float64(e) - float64(x[i])*float64(x[i])); diff > epsilon*norm {
					t.Errorf("%s, seed %d: coordinate %d, %v, is estimated as %v; ε‖g‖² is %v", name, seed, i, x[i], e, epsilon*norm)
					break
				}
			}
			if got := s.SquaredNorm(); got < 0.5*norm || got > 1.5*norm {
				t.Errorf("%s, seed %d: the squared norm, %v, is estimated as %v", name, seed, norm, got)
			}
		}
	}
}

// A row's estimate has mean g_i and a variance of at most ‖g‖²/c.
func TestOneRowIsUnbiased(t *testing.T) {
	const n, columns, seeds = 400, 40, 5000
	x := vectors(n)["rows"]
	const at = 70
	variance := squaredNorm(x) / columns
	sum, squares := 0.0, 0.0
	for seed := range uint64(seeds) {
		var e [1]float32
		sketchOf(mustHash(t, Config{1, columns, seed}, n), x).Query(e[:], at)
		d := float64(e[0]) - float64(x[at])
		sum, squares = sum+d, squares+d*d
	}
	if mean := sum / seeds; math.Abs(mean) > 4*math.Sqrt(variance/seeds) {
		t.Errorf("the mean error is %v; the standard error %v", mean, math.Sqrt(variance/seeds))
	}
	if got := squares / seeds; got > 1.1*variance {
		t.Errorf("the variance is %v, at most %v", got, variance)
	}
}

// Cells of 16 bits are off by at most 2^-11 of themselves, or of 2^-28 of the largest.
func TestHalfCells(t *testing.T) {
	const n = 20_000
	for name, x := range vectors(n) {
		for _, factor := range []float32{1, 1e-30, 1e30, 0} {
			scaled := make([]float32, n)
			for i, v := range x {
				scaled[i] = v * factor
			}
			h := mustHash(t, Config{5, 300, 1}, n)
			s, back := sketchOf(h, scaled), New(h)
			encoded, err := s.Append(nil, Float16)
			if err != nil || len(encoded) != h.EncodedLen(Float16) {
				t.Fatalf("%d bytes, %v", len(encoded), err)
			}
			if err := back.AddEncoded(encoded); err != nil {
				t.Fatal(err)
			}
			largest := 0.0
			for _, v := range s.Cells() {
				largest = max(largest, math.Abs(float64(v)))
			}
			rounded := sketchOf(h, scaled)
			if err := rounded.Round(Float16); err != nil {
				t.Fatal(err)
			}
			sameValues(t, rounded, back)
			for i, v := range s.Cells() {
				bound := max(math.Abs(float64(v)), largest*0x1p-29) * 0x1p-11
				if diff := math.Abs(float64(v) - float64(back.Cells()[i])); diff > bound {
					t.Fatalf("%s x %v: cell %d, %v, travels as %v", name, factor, i, v, back.Cells()[i])
				}
			}
		}
	}
}

// Cells of 16 bits keep 11 bits from the largest down to 2^-28 of it, at every scale.
func TestHalfCellsBesideTheLargest(t *testing.T) {
	const bits = 0x1.004p0 // 11 of them
	for _, largest := range []float64{1, 0x1.ffcp0, 0x1p120, 0x1p-90} {
		s := New(mustHash(t, Config{1, 29, 1}, 1))
		for i := range s.cells {
			s.cells[i] = float32(math.Ldexp(bits, math.Ilogb(largest)-i))
		}
		s.cells[0] = float32(largest)
		want := slices.Clone(s.cells)
		if err := s.Round(Float16); err != nil {
			t.Fatal(err)
		}
		for i, v := range s.cells {
			if v != want[i] {
				t.Errorf("beside %v, 2^-%d of it, %x, is rounded to %x", largest, i, want[i], v)
			}
		}
	}
}

func TestOverflow(t *testing.T) {
	h := mustHash(t, Config{1, 1, 1}, 2)
	for _, x := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		for _, w := range []Cells{Float32, Float16} {
			if got, err := sketchOf(h, []float32{1, x}).Append([]byte("kept"), w); !errors.Is(err, ErrOverflow) || string(got) != "kept" {
				t.Errorf("%v: %q, %v; want ErrOverflow", x, got, err)
			}
		}
	}
	// A float32 that rounds to infinity in 11 bits, and the one before it.
	if _, err := sketchOf(h, []float32{overflow16}).Append(nil, Float16); !errors.Is(err, ErrOverflow) {
		t.Errorf("%v, want ErrOverflow", err)
	}
	encoded, err := sketchOf(h, []float32{math.Nextafter32(overflow16, 0)}).Append(nil, Float16)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(h).AddEncoded(encoded); err != nil {
		t.Error(err)
	}
	// The sum of two sketches.
	s := sketchOf(h, []float32{math.MaxFloat32})
	if encoded, err = s.Append(nil, Float32); err != nil {
		t.Fatal(err)
	}
	if err := s.AddEncoded(encoded); !errors.Is(err, ErrOverflow) {
		t.Errorf("%v, want ErrOverflow", err)
	}
}

// FuzzAddEncoded: any bytes are a sketch, which is then encoded as it came, or an error.
func FuzzAddEncoded(f *testing.F) {
	h := mustHash(f, Config{3, 2, 1}, 100)
	for _, w := range []Cells{Float32, Float16} {
		encoded, err := sketchOf(h, integers(1, 100)).Append(nil, w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s := New(h)
		if err := s.AddEncoded(src); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if src[1] == 4 {
			again, err := s.Append(nil, Float32)
			for i := range s.Cells() { // 0 + -0 is 0
				if at := HeaderLen + 4*i; bytes.Equal(src[at:at+4], []byte{0, 0, 0, 0x80}) {
					src[at+3] = 0
				}
			}
			if err != nil || !bytes.Equal(again, src) {
				t.Fatalf("%x becomes %x, %v", src, again, err)
			}
		}
	})
}

// FuzzPlain compares the block-wise paths with the definitions, coordinate by coordinate.
func FuzzPlain(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint16(3), uint8(5), uint32(65530), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, columns uint16, rows uint8, from uint32, seed uint64) {
		n := len(b)
		c := Config{2*int(rows%8) + 1, int(columns) + 1, seed}
		if c.Rows > MaxRows {
			return
		}
		start := int(from % (1 << 18))
		h := mustHash(t, c, start+n)
		x := make([]float32, n)
		for i, v := range b {
			x[i] = float32(int8(v))
		}
		got, want := New(h), New(h)
		got.Insert(start, x)
		for k, v := range x {
			i := uint64(start + k)
			for r := range c.Rows {
				want.row(r)[h.bucket(r, i)] += float32(1-2*int(h.negative(r, i))) * v
			}
		}
		sameCells(t, got, want)
		estimates := make([]float32, n)
		got.Query(estimates, start)
		for k, e := range estimates {
			i := uint64(start + k)
			var rows []float32
			for r := range c.Rows {
				rows = append(rows, float32(1-2*int(h.negative(r, i)))*got.row(r)[h.bucket(r, i)])
			}
			slices.Sort(rows)
			if want := rows[len(rows)/2]; e != want {
				t.Fatalf("coordinate %d is estimated as %v, want %v", i, e, want)
			}
		}
	})
}
