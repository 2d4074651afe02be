package feedback_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

var floats = []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16}

// lossy returns every codec that loses something, and some with other parameters.
func lossy(t testing.TB) []codecs.Codec {
	t.Helper()
	var list []codecs.Codec
	for _, text := range append(slices.DeleteFunc(all.Names(), func(name string) bool { return name == "threshold" }), // its default is far below the values of these tests
		"threshold(t=1)", "3lc(s=1.75)", "3lc(s=1.5,block=100)", "int4(block=32)") {
		if c := mustNew(t, text); codecs.Lossy(c) && !c.Traits().Unbiased {
			list = append(list, c)
		}
	}
	return list
}

func mustNew(t testing.TB, text string) codecs.Codec {
	t.Helper()
	c, err := all.New(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A stream is a tensor that is sent again and again, with the sums of the values that went in and that came out.
type stream struct {
	t        *testing.T
	rand     *rand.Rand
	dtype    tensor.DType
	residual []float32
	in, out  []float64
	largest  float64 // magnitude of a value or residual
	steps    int
}

func newStream(t *testing.T, d tensor.DType, n int) *stream {
	const seed = 11
	return &stream{t: t, rand: rand.New(rand.NewPCG(seed, seed)), dtype: d, residual: make([]float32, n), in: make([]float64, n), out: make([]float64, n)}
}

// send sends steps values of the tensor, cut at cuts, by c.
func (s *stream) send(c codecs.Codec, steps int, cuts ...int) {
	s.t.Helper()
	ends := append(cuts, len(s.residual))
	var encoders []codecs.Encoder
	var decoders []codecs.Decoder
	from := 0
	for _, to := range ends {
		e, err1 := feedback.NewEncoder(c, s.dtype, s.residual[from:to])
		d, err2 := c.NewDecoder(s.dtype, to-from)
		if err := errors.Join(err1, err2); err != nil {
			s.t.Fatal(err)
		}
		encoders, decoders = append(encoders, e), append(decoders, d)
		from = to
	}
	size := s.dtype.Size()
	x, y := make([]byte, len(s.in)*size), make([]byte, len(s.in)*size)
	for range steps {
		s.draw(x)
		from := 0
		for i, to := range ends {
			encoded, err := encoders[i].Append(nil, x[from*size:to*size])
			if err != nil {
				s.t.Fatal(err)
			}
			if err := decoders[i].Decode(y[from*size:to*size], encoded); err != nil {
				s.t.Fatal(err)
			}
			from = to
		}
		s.add(s.in, x)
		s.add(s.out, y)
		s.steps++
	}
}

func (s *stream) draw(x []byte) {
	v := make([]float32, len(s.in))
	for i := range v {
		v[i] = float32(s.rand.NormFloat64()) * float32(math.Pow(2, float64(i%5)))
	}
	tensor.FromFloat32(x, v, s.dtype)
}

func (s *stream) add(sums []float64, b []byte) {
	v := make([]float32, len(sums))
	tensor.ToFloat32(v, b, s.dtype)
	for i := range v {
		sums[i] += float64(v[i])
		s.largest = max(s.largest, math.Abs(float64(v[i])), math.Abs(float64(s.residual[i])))
	}
}

// check fails unless all that went in has come out or is left: each step rounds two float32 of at most largest.
func (s *stream) check() {
	s.t.Helper()
	allowed := float64(s.steps) * 2 * s.largest * 0x1p-23
	for i := range s.in {
		if lost := math.Abs(s.in[i] - s.out[i] - float64(s.residual[i])); !(lost <= allowed) {
			s.t.Fatalf("value %d: of %v, %v was delivered and %v is left: %v is lost, %v is allowed", i, s.in[i], s.out[i], s.residual[i], lost, allowed)
		}
	}
}

// Σx = Σy + e, over many steps, for every codec and type.
func TestNothingIsLost(t *testing.T) {
	times := 10
	if require.Race {
		times = 2
	}
	for _, c := range lossy(t) {
		for _, d := range floats {
			t.Run(c.String()+"/"+d.String(), func(t *testing.T) {
				s := newStream(t, d, 777)
				for range times {
					s.send(c, 30)
					s.check()
				}
			})
		}
	}
}

// Without feedback the same streams do lose: the test above can fail.
func TestWithoutFeedbackIsLost(t *testing.T) {
	s := newStream(t, tensor.Float32, 777)
	c := mustNew(t, "3lc(s=1.75)")
	s.send(c, 30)
	clear(s.residual)
	s.send(c, 30)
	for i := range s.in {
		if math.Abs(s.in[i]-s.out[i]-float64(s.residual[i])) > 0.1 {
			return
		}
	}
	t.Error("a residual was cleared and nothing is missing")
}

// The residual belongs to the tensor: another codec, and other cuts, go on where the last left off.
func TestResidualSurvivesChanges(t *testing.T) {
	for _, d := range floats {
		t.Run(d.String(), func(t *testing.T) {
			s := newStream(t, d, 1000)
			s.send(mustNew(t, "3lc(s=1.75)"), 20, 400)
			before := slices.Clone(s.residual)
			if feedback.SquaredNorm(before) == 0 {
				t.Fatal("3lc left nothing")
			}
			s.send(mustNew(t, "int4"), 20, 700, 900)
			s.check()
			s.send(mustNew(t, "3lc(s=1.9)"), 20)
			s.send(mustNew(t, "int8"), 1, 1)
			s.check()
			if after := feedback.SquaredNorm(s.residual); after > feedback.SquaredNorm(before)/100 {
				t.Errorf("int8 left %v of the squared norm that 3lc left, %v", after, feedback.SquaredNorm(before))
			}
		})
	}
}

// Delivered values count as elements of the tensor's type: a float16 that would be infinite is the largest finite one,
// and the rest stays in the residual.
func TestDeliveredInTheSourcesType(t *testing.T) {
	for _, c := range lossy(t) {
		for d, maximum := range map[tensor.DType]float32{tensor.Float16: 65504, tensor.BFloat16: 0x1.fep127} {
			residual := []float32{maximum / 64, 0, 0, 0}
			e, err := feedback.NewEncoder(c, d, residual)
			if err != nil {
				t.Fatal(err)
			}
			x := []float32{maximum, 0, maximum / 1024, 0}
			if d == tensor.BFloat16 { // the sum, 3LC's M, and a sketch's sums of some values must be float32
				x[0], residual[0] = maximum/32, maximum/8192
			}
			b := make([]byte, 4*d.Size())
			tensor.FromFloat32(b, x, d)
			sum := []float32{x[0] + residual[0], 0, x[2], 0}
			encoded, err := e.Append(nil, b)
			if errors.Is(err, codecs.ErrUnsuited) {
				t.Errorf("%v, %v: %v", c, d, err)
				continue
			}
			dec, err := c.NewDecoder(d, 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := dec.Decode(b, encoded); err != nil {
				t.Fatal(err)
			}
			y := make([]float32, 4)
			tensor.ToFloat32(y, b, d)
			for i := range y {
				if math.IsInf(float64(y[i]), 0) || residual[i] != sum[i]-y[i] {
					t.Errorf("%v, %v: the sum %v is delivered as %v and leaves %v", c, d, sum[i], y[i], residual[i])
				}
			}
		}
	}
}

func TestUnsuited(t *testing.T) {
	for _, c := range []struct {
		text string
		d    tensor.DType
	}{{"lossless", tensor.Float32}, {"3lc", tensor.Int32}, {"int8", tensor.NoDType}} {
		if _, err := feedback.NewEncoder(mustNew(t, c.text), c.d, make([]float32, 8)); !errors.Is(err, codecs.ErrUnsuited) {
			t.Errorf("%s, %v: %v, want ErrUnsuited", c.text, c.d, err)
		}
	}
}

// In the steady state, neither end allocates, but for one library.
func TestNoAllocations(t *testing.T) {
	if require.Race {
		t.Skip("with -race, pools drop some of what is put into them")
	}
	const n = 5000
	for _, c := range lossy(t) {
		for _, d := range floats {
			e, err := feedback.NewEncoder(c, d, make([]float32, n))
			if err != nil {
				t.Fatal(err)
			}
			dec, err := c.NewDecoder(d, n)
			if err != nil {
				t.Fatal(err)
			}
			s := newStream(t, d, n)
			x, y := make([]byte, n*d.Size()), make([]byte, n*d.Size())
			s.draw(x)
			dst := make([]byte, 0, c.MaxEncodedLen(n)+64)
			allocs := testing.AllocsPerRun(50, func() {
				encoded, err := e.Append(dst, x)
				if err != nil {
					t.Fatal(err)
				}
				if err := dec.Decode(y, encoded); err != nil {
					t.Fatal(err)
				}
			})
			// The library that finds skcompress's quantiles allocates.
			if allocs >= 1 && !strings.HasPrefix(c.String(), "skcompress") {
				t.Errorf("%v, %v: %v allocations a step", c, d, allocs)
			}
		}
	}
}
