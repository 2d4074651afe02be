package gspar

import (
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/gspar/generators"
	"github.com/gradproxy/gradproxy/codecs/internal/rng"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/tensor"
)

// gradient is a vector of a kind.
type gradient struct {
	name string
	g    []float32
}

// gradients returns vectors of d values: of several distributions, and one with values that differ so much that almost
// all of them matter little.
func gradients(d int) []gradient {
	var all []gradient
	for _, k := range []codectest.Kind{codectest.Constant, codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows, codectest.Finite} {
		g := make([]float32, d)
		tensor.ToFloat32(g, k.Fill(tensor.Float32, d, 1), tensor.Float32)
		all = append(all, gradient{k.String(), g})
	}
	powers := make([]float32, d)
	for i := range powers {
		powers[i] = float32(math.Ldexp(1+float64(i%7)/7, -i%100))
	}
	return append(all, gradient{"powers", powers})
}

var budgets = []float64{1e-6, 0.01, 0.3, 1, 10, 1000}

// (4): the mean of Q(g) is g. Of n encodings, each mean is within five of its standard deviations, and most within
// two.
func TestMeanIsGradient(t *testing.T) {
	const d, n = 100, 1000
	for _, c := range []Config{{Kappa: 0.1}, {Kappa: 0.4}, {Eps: 1}, {Eps: 10}, {Uniform: true, Kappa: 0.1}} {
		m := method{c}
		codec := mustNew(t, c)
		for _, v := range gradients(d) {
			if v.name == "powers" && !c.Uniform {
				continue // most are sent less than once in n
			}
			sum := make([]float64, d)
			e, _ := codec.NewEncoder(tensor.Float32, d)
			dec, _ := codec.NewDecoder(tensor.Float32, d)
			src, y := make([]byte, 4*d), make([]float32, d)
			tensor.FromFloat32(src, v.g, tensor.Float32)
			for range n {
				encoded, err := e.Append(nil, src)
				if err != nil {
					t.Fatal(err)
				}
				back := make([]byte, 4*d)
				if err := dec.Decode(back, encoded); err != nil {
					t.Fatal(err)
				}
				tensor.ToFloat32(y, back, tensor.Float32)
				for i := range y {
					sum[i] += float64(y[i])
				}
			}
			far := 0
			for i, x := range v.g {
				p := c.Kappa
				if !c.Uniform {
					p = Probability(1/float64(m.unit(v.g)), x)
				}
				g := float64(x)
				if p*n < 20 { // too rare for a normal distribution
					continue
				}
				deviation := math.Abs(g)*math.Sqrt((1/p-1)/n) + 1e-6*math.Abs(g)
				off := math.Abs(sum[i]/n - g)
				if off > 5*deviation {
					t.Errorf("%v, %s: the mean of value %d is %v, want %v ± %v", codec, v.name, i, sum[i]/n, g, deviation)
				}
				if off > 2*deviation {
					far++
				}
			}
			if far > d/10 {
				t.Errorf("%v, %s: %d of %d means are more than two standard deviations off", codec, v.name, far, d)
			}
		}
	}
}

// messages returns Q(g) and both of its forms.
func (m method) messages(g []float32, step uint64) (q *sparsified, asHybrid, asDense []byte) {
	q = &sparsified{d: len(g), unit: m.unit(g)}
	q.draw(g, rng.Of(1, step, g))
	p := new(sparse.Picks)
	return q, q.appendHybrid(nil, p), q.appendDense(nil, p)
}

// Section 2.3: a value is delivered as itself if it is sure to be sent, else as ±1/λ with its own sign, or not. Both
// forms say the same, and the shorter one is sent.
func TestMessageForms(t *testing.T) {
	used := map[byte]int{}
	for _, d := range []int{1, 2, 7, 100, 20000} {
		for _, v := range gradients(d) {
			for _, c := range []Config{{Kappa: 0.001}, {Kappa: 0.05}, {Kappa: 0.5}, {Eps: 0.1}, {Eps: 5}} {
				m := method{c}
				m.Seed = 1
				q, asHybrid, asDense := m.messages(v.g, 0)
				var both [2][]float32
				for form, message := range [][]byte{asHybrid, asDense} {
					both[form] = make([]float32, d)
					if rest, err := decode(both[form], message, new(sparse.Picks)); err != nil || len(rest) > 0 {
						t.Fatalf("%s of %d, %v, form %d: %d bytes are left, %v", v.name, d, c, form, len(rest), err)
					}
				}
				if !slices.Equal(both[0], both[1]) {
					t.Errorf("%s of %d, %v: the forms differ", v.name, d, c)
				}
				for i, y := range both[0] {
					g := v.g[i]
					sure := math.Abs(float64(g)) >= float64(q.unit) && g != 0
					if sure && y != g || !sure && y != 0 && (y != q.unit && y != -q.unit || math.Signbit(float64(y)) != math.Signbit(float64(g))) {
						t.Fatalf("%s of %d, %v: %v is delivered as %v; 1/λ is %v", v.name, d, c, g, y, q.unit)
					}
				}
				sent, err := gSpar{m}.AppendBlock(nil, v.g, 0, new(sparse.Picks))
				if err != nil || len(sent) != min(len(asHybrid), len(asDense)) {
					t.Errorf("%s of %d, %v: %d bytes are sent; the forms have %d and %d (%v)", v.name, d, c, len(sent), len(asHybrid), len(asDense), err)
				}
				used[sent[0]]++
			}
		}
	}
	if used[hybrid] == 0 || used[dense] == 0 {
		t.Errorf("of the forms, %v are sent: not both", used)
	}
}

// Section 2.3: q̃ takes at most 2d bits, and as few as entropy coding can reach: Σ d_l log2(d/d_l).
func TestDenseFormIsAtMostTwoBits(t *testing.T) {
	const overhead = 8 * (headerLen + 4*4 + 8 + 4) // bits: header, four counts, state, a word that is not full
	for _, d := range []int{1, 100, 4096, 30000} {
		all := gradients(d)
		// The most that four symbols can take: each as often as the others.
		q := &sparsified{d: d, unit: 1}
		for i := range d {
			switch i % 4 {
			case 1, 2:
				q.B, q.negative = append(q.B, uint32(i)), append(q.negative, i%4 == 2)
			case 3:
				q.A, q.values = append(q.A, uint32(i)), append(q.values, 1)
			}
		}
		check := func(name string, q *sparsified) {
			bits := float64(8 * (len(q.appendDense(nil, new(sparse.Picks))) - 4*len(q.A)))
			if bits > 2*float64(d)+overhead || bits > q.entropy()*1.001+overhead {
				t.Errorf("%s of %d: %v bits; 2d is %d, the entropy %.0f", name, d, bits, 2*d, q.entropy())
			}
		}
		check("even", q)
		for _, v := range all {
			for _, eps := range budgets {
				q, _, _ := method{Config{Eps: eps}}.messages(v.g, 0)
				check(v.name, q)
			}
		}
	}
}

// Lemma 3: with ε = ρ of a (ρ, s)-approximately sparse g (Definition 2), at most (1+ρ)s values are sent on average.
// Theorem 4: the message then has at most s(b + log2 d) + min(ρs log2 d, d) + b bits, and the bits of counts.
func TestTheorem4(t *testing.T) {
	const (
		b         = 32
		encodings = 5
		counting  = 8 * (1 + 2*(5+12)) // bits: form, and of QA and QB each its count, the divisor and the first of its keys
	)
	vectors := gradients(1 << 14)
	for column := range generators.Columns {
		data := generators.Swapped(column)
		data.N = 8
		g := make([]float32, data.D)
		made := data.Generate(1)
		for n := range data.N {
			for i, a := range made.Row(n) {
				g[i] += made.B[n] * a
			}
		}
		vectors = append(vectors, gradient{data.Name, g})
	}
	for _, v := range vectors {
		d := len(v.g)
		for _, s := range []int{d / 1000, d / 100, d / 20, d / 5, d / 2} {
			rho := approximateSparsity(v.g, s)
			if rho == 0 || math.IsInf(rho, 0) {
				continue
			}
			lambda := ClosedForm(v.g, rho)
			if sent := density(v.g, lambda) * float64(d); sent > (1+rho)*float64(s)*(1+1e-9) {
				t.Errorf("%s, s = %d, ρ = %v: %v values are sent, more than (1+ρ)s", v.name, s, rho, sent)
			}
			bits := 0.0
			for step := range uint64(encodings) {
				m := method{Config{Eps: rho, Seed: 1}}
				message, err := gSpar{m}.AppendBlock(nil, v.g, step, new(sparse.Picks))
				if err != nil {
					t.Fatal(err)
				}
				bits += 8 * float64(len(message)) / encodings
			}
			S, D := float64(s), float64(d)
			limit := S*(b+math.Log2(D)) + min(rho*S*math.Log2(D), D) + b
			if bits > limit+counting {
				t.Errorf("%s, s = %d, ρ = %v: %v bits, more than %.0f", v.name, s, rho, bits, limit)
			}
		}
	}
}

// approximateSparsity returns the least ρ for which g is (ρ, s)-approximately sparse: with the s largest in S.
func approximateSparsity(g []float32, s int) float64 {
	abs := make([]float64, len(g))
	for i, v := range g {
		abs[i] = math.Abs(float64(v))
	}
	slices.Sort(abs)
	slices.Reverse(abs)
	inside, outside := 0.0, 0.0
	for i, a := range abs {
		if i < s {
			inside += a
		} else {
			outside += a
		}
	}
	return outside / inside
}

// UniSp: the variance is 1/κ times that of g, 2, 6 and 18 in the figures, for every g.
func TestUniSpVariance(t *testing.T) {
	const d, encodings = 2000, 150
	for _, inverse := range []float64{2, 6, 18} {
		codec := mustNew(t, Config{Uniform: true, Kappa: 1 / inverse})
		for _, v := range gradients(d) {
			if v.name == "powers" || v.name == "heavy" {
				continue // a few values have all the variance: it takes more encodings to see it
			}
			e, _ := codec.NewEncoder(tensor.Float32, d)
			dec, _ := codec.NewDecoder(tensor.Float32, d)
			src, y := make([]byte, 4*d), make([]float32, d)
			tensor.FromFloat32(src, v.g, tensor.Float32)
			got, sum := 0.0, squaresOf(v.g)
			for range encodings {
				encoded, err := e.Append(nil, src)
				if err != nil {
					t.Fatal(err)
				}
				back := make([]byte, 4*d)
				if err := dec.Decode(back, encoded); err != nil {
					t.Fatal(err)
				}
				tensor.ToFloat32(y, back, tensor.Float32)
				got += squaresOf(y) / sum / encodings
			}
			if math.Abs(got/inverse-1) > 0.06 {
				t.Errorf("%v, %s: the variance is %.3f times as large, want %v", codec, v.name, got, inverse)
			}
		}
	}
}

// The variance of GSpar, as measured on encodings, is that of Variance.
func TestVarianceIsWhatIsMeasured(t *testing.T) {
	const d, encodings = 2000, 400
	for _, v := range gradients(d)[1:4] {
		for _, kappa := range []float64{0.5, 0.17, 0.056} {
			m := method{Config{Kappa: kappa, Seed: 1}}
			want := Variance(v.g, 1/float64(m.unit(v.g)))
			got, sum := 0.0, squaresOf(v.g)
			for step := range uint64(encodings) {
				q := &sparsified{d: d, unit: m.unit(v.g)}
				q.draw(v.g, rng.Of(1, step, v.g))
				got += squaresOf(q.values) + float64(len(q.B))*float64(q.unit)*float64(q.unit)
			}
			if got /= sum * encodings; math.Abs(got/want-1) > 0.03 {
				t.Errorf("%s, κ = %v: the variance is %.3f times as large, want %.3f", v.name, kappa, got, want)
			}
		}
	}
}

func squaresOf(g []float32) (sum float64) {
	for _, v := range g {
		sum += float64(v) * float64(v)
	}
	return sum
}
