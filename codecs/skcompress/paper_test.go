package skcompress

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/internal/huffman"
	"github.com/gradproxy/gradproxy/tensor"
)

// finite returns blocks of n values of every kind of data that has no NaN and no infinity.
func finite(n int) map[string][]float32 {
	blocks := map[string][]float32{"normal": codectest.Normal(1, n)}
	for _, k := range codectest.Kinds() {
		if k != codectest.Special && k != codectest.Random && k != codectest.Small { // which have NaN
			x := make([]float32, n)
			tensor.ToFloat32(x, k.Fill(tensor.Float32, n, 1), tensor.Float32)
			blocks[k.String()] = x
		}
	}
	return blocks
}

func mustMethod(t testing.TB, c Config) method {
	t.Helper()
	m, err := newMethod(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Section 4.1, step 1: parts of equally many values.
func TestBucketsAreEqual(t *testing.T) {
	const n, q = 60_000, 64
	m := mustMethod(t, Config{Q: q})
	x := codectest.Normal(4, n)
	w := new(work)
	means := m.quantify(w, survey(x), x)
	if got := len(means[negative]) + len(means[positive]); got != q+1 {
		t.Fatalf("%d buckets, want one more than %d, since 0 is no quantile", got, q)
	}
	var has [2][q]int
	for _, v := range x {
		sign := 1 - math.Float32bits(v)>>31
		has[sign][w.buckets[sign].Index(float32(math.Abs(float64(v))))]++
	}
	for sign := range means {
		for b := range means[sign] {
			if got := has[sign][b]; got < n/q*8/10 || got > n/q*12/10 {
				t.Errorf("sign %d: bucket %d has %d of %d values", sign, b, got, n)
			}
		}
	}
}

// Theorem 2: the variance of quantile-bucket quantification is at most d/(4q)·(φmin²+φmax²). Its proof bounds each
// value's difference to the mean of its bucket's splits by half the bucket, which is checked as well: it is much
// tighter.
func TestTheorem2(t *testing.T) {
	const n = 70_000 // a sketch sees 2·m² of them, of each sign
	for name, x := range finite(n) {
		for _, q := range []int{2, 3, 16, 256} {
			m := mustMethod(t, Config{Q: q})
			w, found := new(work), survey(x)
			if found[negative].values+found[positive].values == 0 {
				continue
			}
			means := m.quantify(w, found, x)
			variance, d := 0.0, 0
			for _, v := range x {
				if v == 0 {
					continue
				}
				d++
				sign, v := 1-math.Float32bits(v)>>31, float32(math.Abs(float64(v)))
				b := w.buckets[sign].Index(v)
				diff := float64(means[sign][b]) - float64(v)
				below, above := float64(w.buckets[sign].splits[b]), float64(w.buckets[sign].splits[b+1])
				if half := (above - below) / 2; math.Abs(diff) > half+above*0x1p-24+0x1p-150 { // a mean is rounded to float32
					t.Fatalf("%s, q = %d: %v is delivered as %v, more than half its bucket (%v to %v) away", name, q, v, means[sign][b], below, above)
				}
				variance += diff * diff
			}
			low, high := 0.0, 0.0 // φ of a sign that does not occur is the split at 0
			if found[negative].values > 0 {
				low = float64(found[negative].max)
			}
			if found[positive].values > 0 {
				high = float64(found[positive].max)
			}
			if bound := float64(d) / float64(4*q) * (low*low + high*high); variance > bound*(1+1e-6) {
				t.Errorf("%s, q = %d: the variance is %v, and its bound %v", name, q, variance, bound)
			}
		}
	}
}

// Section 4.2, solutions 1 and 2: no decoded value changes sign, none is in a bucket farther from zero than its own,
// and none is q/r buckets or more closer.
func TestSignsAndGroups(t *testing.T) {
	const n = 8000
	for name, x := range finite(n) {
		for _, c := range []Config{{}, {Q: 64, R: 4, Mode: Sparse}, {Mode: Dense}, {Q: 100, R: 7, Rows: 1, Cols: 0.5}} {
			m := mustMethod(t, c)
			encoded, w := m.appendBlock(nil, new(work), survey(x), x), new(work)
			trueOnes := new(work)
			m.appendBlock(nil, trueOnes, survey(x), x)
			y := make([]float32, n)
			if _, err := m.decodeBlock(w, y, encoded); err != nil {
				t.Fatalf("%s, %v: %v", name, m, err)
			}
			if encoded[0] == formZeros {
				continue
			}
			for i := range x {
				if cmp.Compare(x[i], 0) != cmp.Compare(y[i], 0) {
					t.Fatalf("%s, %v: %v is delivered as %v", name, m, x[i], y[i])
				}
				if x[i] == 0 {
					continue
				}
				class, index := trueOnes.class[i], trueOnes.index[i]
				got := w.groups[class].sketch.Query(uint64(i))
				if w.class[i] != class || got > index || int(index-got) >= (m.Q+m.R-1)/m.R {
					t.Fatalf("%s, %v: value %d of group %d and bucket %d is in group %d and bucket %d", name, m, i, class, index, w.class[i], got)
				}
			}
		}
	}
}

// Section 4.3 and Figure 7: items that occur 6, 3, 2 and 1 times cost 21 bits, not 24; and coding them, table and all,
// never costs more than the bit that says that it is not done.
func TestHuffmanOfCells(t *testing.T) {
	w := &work{numbers: []uint32{6, 3, 2, 1}}
	w.cost()
	if got := w.code.Cost(w.numbers); got != 21 {
		t.Errorf("%d bits, want 21", got)
	}
	if got, optimal := w.cost(); got != 1+24 || optimal {
		t.Errorf("%d bits, %v; the table costs more than 3", got, optimal)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		w.numbers = make([]uint32, 1+r.IntN(64))
		total := 0
		for i := range w.numbers {
			w.numbers[i] = uint32(r.IntN(1 << r.IntN(12)))
			total += int(w.numbers[i])
		}
		if got, _ := w.cost(); got > 1+total*int(huffman.Fixed(len(w.numbers))) {
			t.Errorf("%v cost %d bits", w.numbers, got)
		}
	}
}

// Section 7.7: with q = 16 and cells of 2 times d/5, a value takes 1.6 bits, 20x, before Huffman's code.
func TestTwentyfold(t *testing.T) {
	const n = 100_000
	x := codectest.Normal(8, n)
	m := mustMethod(t, Config{Mode: Joint})
	w := new(work)
	encoded := m.appendBlock(nil, w, survey(x), x)
	l := layout{buckets: [2]int{8, 8}, joint: true}
	if bits := len(w.cells) * int(huffman.Fixed(l.alphabet())); 20*bits != 32*n {
		t.Errorf("%d bits of cells for %d values, want 1.6 each", bits, n)
	}
	if ratio := 4 * float64(n) / float64(len(encoded)); ratio < 21.7 {
		t.Errorf("%.1fx after Huffman's code, section 7.7 has 21.7x", ratio)
	}
}

// Section 5 and appendix A.3: lists and map deliver the same, and auto takes the shorter.
func TestAutoTakesTheShorter(t *testing.T) {
	const n = 10_000
	for name, x := range finite(n) {
		lengths := map[Mode]int{}
		var delivered [][]float32
		for _, mode := range []Mode{Auto, Sparse, Dense} {
			m := mustMethod(t, Config{Q: 64, R: 4, Mode: mode})
			encoded := m.appendBlock(nil, new(work), survey(x), x)
			y := make([]float32, n)
			if _, err := m.decodeBlock(new(work), y, encoded); err != nil {
				t.Fatal(err)
			}
			lengths[mode], delivered = len(encoded), append(delivered, y)
		}
		if !slices.Equal(delivered[0], delivered[1]) || !slices.Equal(delivered[0], delivered[2]) {
			t.Errorf("%s: modes deliver different values", name)
		}
		if a, limit := lengths[Auto], min(lengths[Sparse], lengths[Dense]); a > limit+1 { // a map's bits go on in its last byte
			t.Errorf("%s: %d bytes, and lists or a map %d", name, a, limit)
		}
	}
}
