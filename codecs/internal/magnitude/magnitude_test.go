package magnitude

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
	"github.com/gradproxy/gradproxy/tensor/simd"
)

// plainTop sorts: the k largest magnitudes that are not zero, of equal ones the first, in the order of positions.
func plainTop(x []float32, k int) []uint32 {
	all := make([]uint32, 0, len(x))
	for i, v := range x {
		if Of(v) > 0 {
			all = append(all, uint32(i))
		}
	}
	slices.SortStableFunc(all, func(a, b uint32) int { return int(int64(Of(x[b])) - int64(Of(x[a]))) })
	all = all[:min(k, len(all))]
	slices.Sort(all)
	return all
}

func checkTop(t *testing.T, x []float32, k int) {
	t.Helper()
	keys, values, _ := Top([]uint32{7}, []float32{7}, Values{X: x}, k, nil)
	want := plainTop(x, k)
	if keys[0] != 7 || !slices.Equal(keys[1:], want) {
		t.Fatalf("the %d largest of %d are at %v, want %v", k, len(x), keys[1:], want)
	}
	for i, key := range keys[1:] {
		if math.Float32bits(values[i+1]) != math.Float32bits(x[key]) {
			t.Fatalf("value %d is %v, want %v", key, values[i+1], x[key])
		}
	}
}

// Top finds the same k largest values as sorting, for all kinds of values, also where the sample misleads.
func TestTop(t *testing.T) {
	for _, kind := range codectest.Kinds() {
		for _, n := range []int{0, 1, 7, 8, 9, 1023, 1024, 1025, 30000} {
			x := make([]float32, n)
			tensor.ToFloat32(x, kind.Fill(tensor.Float32, n, 1), tensor.Float32)
			for _, k := range []int{1, 2, n / 1000, n / 100, n / 4, n - 1, n, n + 1} {
				checkTop(t, x, max(k, 1))
			}
		}
	}
	// A sample that holds all that is large, and one that holds none of it.
	for _, inside := range []bool{true, false} {
		x := make([]float32, 1<<16)
		mark := make([]float32, len(x))
		for i := range mark {
			mark[i] = float32(i)
		}
		sampled := Sample(nil, Values{X: mark})
		for i := range x {
			_, found := slices.BinarySearch(sampled, float32(i))
			x[i] = float32(i%5) + 1
			if found == inside {
				x[i] *= 1000
			}
		}
		checkTop(t, x, 655)
		checkTop(t, x, 2000)
	}
}

// Near selects about as many values as asked for, by a threshold: no value that it leaves is larger than one that it
// takes.
func TestNear(t *testing.T) {
	n, kinds := 1<<18, []codectest.Kind{codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows}
	if require.Race { // which finds misplaced pointers in one as well as in many
		n, kinds = 1<<14, kinds[:1]
	}
	for _, kind := range kinds {
		x := make([]float32, n)
		tensor.ToFloat32(x, kind.Fill(tensor.Float32, n, 3), tensor.Float32)
		for _, k := range []int{10, n / 100, n / 20, n / 8} {
			keys, values, _ := Near(nil, nil, Values{X: x}, k, 2*k, Enough, nil)
			if len(keys) < k/2 || len(keys) > 2*k {
				t.Errorf("%v: %d selected, want about %d", kind, len(keys), k)
			}
			smallest := uint32(math.MaxUint32)
			for i, v := range values {
				smallest = min(smallest, Of(v))
				if x[keys[i]] != v {
					t.Fatalf("%v: value %d is %v, want %v", kind, keys[i], v, x[keys[i]])
				}
			}
			for i, v := range x {
				if _, found := slices.BinarySearch(keys, uint32(i)); !found && Of(v) > smallest {
					t.Fatalf("%v: %v is left, something smaller is not", kind, v)
				}
			}
		}
	}
}

// Where the sample sees only zeros, Near does not send everything else.
func TestNearIsBounded(t *testing.T) {
	const n, k = 1 << 18, 1 << 13
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	for _, i := range Sample(nil, Values{X: x}) {
		x[int(i)] = 0
	}
	keys, _, _ := Near(nil, nil, Values{X: x}, k, 2*k, Enough, nil)
	if !slices.Equal(keys, plainTop(x, k)) {
		t.Errorf("%d selected, want the %d largest", len(keys), k)
	}
}

// Sample takes a 64th, evenly: each place in a row of 64, 128, ... is taken as often as others.
func TestSample(t *testing.T) {
	x := make([]float32, 1<<20)
	for i := range x {
		x[i] = float32(i % samplePeriod / sampleLine)
	}
	s := Sample(nil, Values{X: x})
	if len(s) != len(x)/64 {
		t.Fatalf("%d of %d", len(s), len(x))
	}
	var counts [samplePeriod / sampleLine]int
	for _, v := range s {
		counts[int(v)]++
	}
	for i, c := range counts {
		if want := len(s) / len(counts); c < want/2 || c > want*2 {
			t.Errorf("line %d is taken %d times, want about %d", i, c/sampleLine, want/sampleLine)
		}
	}
}

// FuzzSelect compares Select, Kth and Top with their plain forms.
func FuzzSelect(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 70+i, 1), uint32(0x3a000000), uint16(9))
		f.Add(asmtest.Awkward(41*i, uint64(i), true), uint32(0x3f800000), uint16(9))
	}
	f.Add([]byte{}, uint32(0), uint16(0))
	last := append(bytes.Repeat([]byte{1, 0, 0, 0}, 5), make([]byte, 20)...) // subnormals and zeros, of which one is the k-th
	f.Add(append(codectest.Gaussian.Fill(tensor.Float32, 190, 1), last...), uint32(1), uint16(197))
	f.Fuzz(func(t *testing.T, b []byte, threshold uint32, rank uint16) {
		x := asmtest.Floats(b, int(rank%64))
		threshold = clamp(threshold)
		other := asmtest.Floats(b, int(threshold%64))
		slices.Reverse(other)
		asmtest.Do(t, func(simd.Tier) {
			checkSelect(t, Values{X: x}, threshold, threshold)
			checkSelect(t, sumsOf(x, other), threshold, threshold)
			checkSelect(t, sumsOf(x, other), threshold, min(infinity, threshold+uint32(rank)<<12))
		})
		if len(x) == 0 {
			return
		}
		k := 1 + int(rank)%len(x)
		all := make([]uint32, len(x))
		for i, v := range x {
			all[i] = Of(v)
		}
		slices.Sort(all)
		slices.Reverse(all)
		asmtest.Do(t, func(simd.Tier) {
			for _, kth := range []func([]float32, int) (uint32, int){Kth, kthByCounts} {
				m, larger := kth(x, k)
				if m != all[k-1] || larger != slices.Index(all, m) {
					t.Errorf("number %d of %x is %x after %d larger ones", k, all, m, larger)
				}
			}
			checkTop(t, x, k)
		})
	})
}

// Of many values Kth guesses from some, which may be unlike the others.
func TestKthOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	fill := func(n int, f func(i int) float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = f(i)
		}
		return x
	}
	normal := func(int) float32 { return float32(r.NormFloat64()) }
	lengths := []int{4*guessed + 1, 9999, 1 << 16}
	if require.Race { // which finds misplaced pointers in one as well as in many
		lengths = lengths[:1]
	}
	for _, n := range lengths {
		isGuessed := make([]bool, n)
		for line := range guessed / sampleLine {
			at := line * n / (guessed / sampleLine)
			for i := range sampleLine {
				isGuessed[at+i] = true
			}
		}
		for name, x := range map[string][]float32{
			"normal":             fill(n, normal),
			"zeros":              fill(n, func(int) float32 { return 0 }),
			"one value":          fill(n, func(int) float32 { return -3 }),
			"up":                 fill(n, func(i int) float32 { return float32(i) }),
			"down, by octaves":   fill(n, func(i int) float32 { return float32(math.Ldexp(1, 120-240*i/n)) }),
			"any bits":           fill(n, func(int) float32 { return math.Float32frombits(r.Uint32()) }),
			"first NaN":          fill(n, func(i int) float32 { return [2]float32{float32(math.NaN()), 1}[min(i/(n/16), 1)] }),
			"guess of zeros":     fill(n, func(i int) float32 { return []float32{normal(i), 0}[asInt(isGuessed[i])] }),
			"guess of the large": fill(n, func(i int) float32 { return []float32{normal(i), 1e38}[asInt(isGuessed[i])] }),
			"guess of the small": fill(n, func(i int) float32 { return []float32{normal(i), 1e-44}[asInt(isGuessed[i])] }),
			"only the guess":     fill(n, func(i int) float32 { return []float32{0, normal(i)}[asInt(isGuessed[i])] }),
		} {
			all := make([]uint32, n)
			for i, v := range x {
				all[i] = Of(v)
			}
			slices.Sort(all)
			slices.Reverse(all)
			for _, k := range []int{1, n / 100, n / 3, n} {
				asmtest.Do(t, func(simd.Tier) {
					for _, kth := range []func([]float32, int) (uint32, int){Kth, kthByCounts} {
						if m, larger := kth(x, k); m != all[k-1] || larger != slices.Index(all, m) {
							t.Errorf("%s: number %d of %d is %x after %d larger ones, want %x", name, k, n, m, larger, all[k-1])
						}
					}
				})
			}
		}
	}
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sumsOf returns sums with a copy of the residual.
func sumsOf(x, residual []float32) Values {
	residual = append(make([]float32, 3, 4+len(x)), residual...)[3:]
	old := Align(make([]float32, len(x)+16), len(x))
	if len(x)%5 == 1 {
		old = make([]float32, 1+len(x))[1:]
	}
	return Values{x, residual, old}
}

// checkSums fails unless residual is the sums without the values that were taken, and old is the residual from before.
func checkSums(t *testing.T, v Values, sums, before []float32, keys []uint32) {
	t.Helper()
	if v.Residual == nil {
		return
	}
	left := slices.Clone(sums)
	for _, key := range keys {
		left[key] = 0
	}
	for i := range left {
		if !asmtest.Same(v.Residual[i], left[i]) || math.Float32bits(v.Old[i]) != math.Float32bits(before[i]) {
			t.Fatalf("of sum %d, %v, %v is left, want %v; the residual was %v, not %v", i, sums[i], v.Residual[i], left[i], before[i], v.Old[i])
		}
	}
}

func checkSelect(t *testing.T, x Values, threshold, gone uint32) {
	t.Helper()
	sums, before := x.appendTo(nil), slices.Clone(x.Residual)
	keys, values := selectAll([]uint32{7}, []float32{7}, x, threshold, gone)
	n := 1
	for i, v := range sums {
		if Of(v) < threshold {
			continue
		}
		if n == len(keys) || keys[n] != uint32(i) || !asmtest.Same(values[n], v) {
			t.Fatalf("value %d of %v is not selected", i, sums)
		}
		n++
	}
	if n != len(keys) || n != len(values) || keys[0] != 7 || values[0] != 7 {
		t.Fatalf("%d selected, want %d", len(keys)-1, n-1)
	}
	checkSums(t, x, sums, before, slices.DeleteFunc(keys[1:], func(key uint32) bool { return Of(sums[key]) < gone }))
}

// Top and Near take the same values from sums as from the sums written down, for every sample; the others are left.
func TestSums(t *testing.T) {
	for _, kind := range codectest.Kinds() {
		for _, n := range []int{0, 1, 40, 1023, 1024, 5000, 2*cut + 1000} {
			x, residual := make([]float32, n), make([]float32, n)
			tensor.ToFloat32(x, kind.Fill(tensor.Float32, n, 1), tensor.Float32)
			tensor.ToFloat32(residual, kind.Fill(tensor.Float32, n, 2), tensor.Float32)
			asmtest.Do(t, func(simd.Tier) { checkTopOfSums(t, x, residual) })
		}
	}
	// A sample that holds nothing that is large.
	const n = 1 << 14
	x, mark := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], mark[i] = float32(i%5)+1000, float32(i)
	}
	for _, i := range Sample(nil, Values{X: mark}) {
		x[int(i)] = 1
	}
	asmtest.Do(t, func(simd.Tier) { checkTopOfSums(t, x, make([]float32, len(x))) })
}

func checkTopOfSums(t *testing.T, x, residual []float32) {
	t.Helper()
	n := len(x)
	sums := sumsOf(x, residual).appendTo(nil)
	if slices.ContainsFunc(sums, func(v float32) bool { return v != v }) {
		return // of the sum of two NaN, the payload is anything
	}
	for _, k := range []int{1, n/100 + 1, n/4 + 1, n, n + 1} {
		for _, near := range []bool{false, true} {
			v := sumsOf(x, residual)
			keys, values, _ := Top(nil, nil, v, k, nil)
			wantKeys, want, _ := Top(nil, nil, Values{X: sums}, k, nil)
			if near {
				v = sumsOf(x, residual)
				keys, values, _ = Near(nil, nil, v, k, k+k/3, 8, nil)
				wantKeys, want, _ = Near(nil, nil, Values{X: sums}, k, k+k/3, 8, nil)
			}
			if !slices.Equal(keys, wantKeys) || !slices.EqualFunc(values, want, asmtest.Same) {
				t.Errorf("of %d sums, the %d largest are %d, want %d", n, k, keys[:min(9, len(keys))], wantKeys[:min(9, len(wantKeys))])
			}
			checkSums(t, v, sums, residual, keys)
		}
	}
}

func Benchmark(b *testing.B) {
	const n = 1 << 20
	x := make([]float32, n)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	keys, values, scratch := make([]uint32, 0, n+16), make([]float32, 0, n+16), make([]float32, 0, n)
	run := func(name string, op func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
	var h Histogram
	run("histogram", func() { h.Add(x) })
	run("select-1%", func() { Select(keys[:0], values[:0], Values{X: x}, Of(2.5758)) })
	run("select-25%", func() { Select(keys[:0], values[:0], Values{X: x}, Of(1.1503)) })
	run("top-1%", func() { keys, values, scratch = Top(keys[:0], values[:0], Values{X: x}, n/100, scratch) })
	run("near-1%", func() { keys, values, scratch = Near(keys[:0], values[:0], Values{X: x}, n/100, n/50, Enough, scratch) })
	run("top-25%", func() { keys, values, scratch = Top(keys[:0], values[:0], Values{X: x}, n/4, scratch) })
}

// Kernels read nothing beyond the values.
func TestKernelsStayInside(t *testing.T) {
	for n := 1; n < 300; n++ {
		x := asmtest.GuardedFloats(t, asmtest.Floats(asmtest.Awkward(n, uint64(n), true), 0))
		residual := asmtest.GuardedFloats(t, x)
		asmtest.Do(t, func(simd.Tier) {
			Select(nil, nil, Values{X: x}, 1)
			Select(nil, nil, Values{X: x, Residual: residual, Old: Align(make([]float32, n+16), n)}, 1)
			countAll(x, 1)
		})
	}
	x := asmtest.GuardedFloats(t, make([]float32, 5*samplePeriod))
	asmtest.Do(t, func(simd.Tier) { Sample(nil, Values{X: x}) })
}
