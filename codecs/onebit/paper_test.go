package onebit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

// deliver returns the values that are delivered for x as one block.
func deliver(t *testing.T, x []float32) []float32 {
	t.Helper()
	m, _ := codecs.MethodOf(mustNew(t, Config{Block: len(x)}))
	e, err := m.NewEncoder(len(x))
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.NewDecoder(len(x))
	if err != nil {
		t.Fatal(err)
	}
	y := make([]float32, len(x))
	if err := d.Decode(y, b); err != nil {
		t.Fatal(err)
	}
	return y
}

var finite = []codectest.Kind{codectest.Zeros, codectest.Constant, codectest.Gaussian, codectest.Heavy, codectest.Sparse, codectest.Rows, codectest.Finite}

func values(k codectest.Kind, n int, seed uint64) []float32 {
	x := make([]float32, n)
	tensor.ToFloat32(x, k.Fill(tensor.Float32, n, seed), tensor.Float32)
	return x
}

func squared(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// 3LC, section 3.1, of 1-bit SGD: the values that are not negative, and the negative ones, are dequantized to their
// averages, which minimizes the squared error: no other pair of values has less, and the averages have that of the
// package comment.
func TestLeastSquaredError(t *testing.T) {
	for _, k := range finite {
		x := values(k, 3001, 1)
		y := deliver(t, x)
		var count, sum, mean [2]float64 // of values that are not negative, and of negative ones
		sign := func(v float32) int {
			if v < 0 {
				return 1
			}
			return 0
		}
		for _, v := range x {
			count[sign(v)]++
			sum[sign(v)] += float64(v)
		}
		for s := range mean {
			if count[s] > 0 {
				mean[s] = sum[s] / count[s]
			}
		}
		for i, v := range x {
			if want := mean[sign(v)]; math.Abs(float64(y[i])-want) > math.Abs(want)*0x1p-23 {
				t.Fatalf("%v: value %d, %v, is delivered as %v; the mean of its sign is %v", k, i, v, y[i], want)
			}
		}
		squaredError := func(high, low float64) (e float64) {
			for _, v := range x {
				d := float64(v) - [2]float64{high, low}[sign(v)]
				e += d * d
			}
			return e
		}
		smallest := squaredError(mean[0], mean[1])
		if want := squared(x) - count[0]*mean[0]*mean[0] - count[1]*mean[1]*mean[1]; math.Abs(smallest-want) > 1e-9*squared(x) {
			t.Errorf("%v: the squared error is %v, want %v", k, smallest, want)
		}
		if larger := max(count[0], count[1]); smallest > (1-1/larger)*squared(x)*(1+1e-9) {
			t.Errorf("%v: the squared error is %v of %v", k, smallest, squared(x))
		}
		for _, by := range []float64{0.99, 1.01} {
			if squaredError(mean[0]*by, mean[1]) < smallest || squaredError(mean[0], mean[1]*by) < smallest {
				t.Errorf("%v: values other than the averages have a smaller error", k)
			}
		}
	}
}

// Of normal values the error is 1 - 2/π of the square.
func TestErrorOfNormalValues(t *testing.T) {
	const n, seed = 1 << 16, 3
	r := rand.New(rand.NewPCG(seed, seed))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	y := deliver(t, x)
	for i := range y {
		y[i] -= x[i]
	}
	if got, want := squared(y)/squared(x), 1-2/math.Pi; math.Abs(got-want) > 0.01 {
		t.Errorf("the error is %.4f of the square, want %.4f (seed %d)", got, want, seed)
	}
}

// With error feedback the residual of gradients that share a direction settles, and the delivered values add up to the
// gradients less the residual. It takes long to settle, since each step sends only means: about a thousand steps here.
func TestFeedbackIsBounded(t *testing.T) {
	const n, steps, seed = 512, 4000, 5
	r := rand.New(rand.NewPCG(seed, seed))
	residual := make([]float32, n)
	codec := mustNew(t, Config{})
	e, err := feedback.NewEncoder(codec, tensor.Float32, residual)
	if err != nil {
		t.Fatal(err)
	}
	d, err := codec.NewDecoder(tensor.Float32, n)
	if err != nil {
		t.Fatal(err)
	}
	direction := make([]float64, n)
	for i := range direction {
		direction[i] = r.NormFloat64() / 2
	}
	given, delivered := make([]float64, n), make([]float64, n)
	var early, late float64
	x, src, y := make([]float32, n), make([]byte, 4*n), make([]byte, 4*n)
	for step := range steps {
		for i := range x {
			x[i] = float32(direction[i] + r.NormFloat64())
		}
		tensor.FromFloat32(src, x, tensor.Float32)
		b, err := e.Append(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(y, b); err != nil {
			t.Fatal(err)
		}
		for i, v := range tensor.View(y) {
			given[i] += float64(x[i])
			delivered[i] += float64(v)
		}
		if norm := math.Sqrt(squared(residual) / n); step < steps/2 {
			early = max(early, norm)
		} else {
			late = max(late, norm)
		}
	}
	t.Logf("the residual of values of variance 1.25 is up to %.3f in %d steps, and up to %.3f in as many more", early, steps/2, late)
	if late > 1.1*early {
		t.Errorf("the residual grows from %.3f to %.3f (seed %d)", early, late, seed)
	}
	for i := range given {
		if off := math.Abs(given[i] - delivered[i] - float64(residual[i])); off > steps*0x1p-20 {
			t.Fatalf("value %d: %v was given and %v delivered, and the residual is %v", i, given[i], delivered[i], residual[i])
		}
	}
}

// 1 bit a value and 8 bytes a block.
func TestSize(t *testing.T) {
	for _, c := range []struct{ n, want int }{{1 << 16, 8 + 8192}, {1<<16 + 1, 8 + 8192 + 9}, {7, 9}, {0, 0}} {
		m, _ := codecs.MethodOf(mustNew(t, Config{}))
		e, err := m.NewEncoder(c.n)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := e.Append(nil, make([]float32, c.n)); err != nil || len(b) != c.want || m.MaxEncodedLen(c.n) != c.want {
			t.Errorf("%d values take %d bytes, %v; want %d", c.n, len(b), err, c.want)
		}
	}
}
