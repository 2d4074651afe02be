package codectest

import (
	"math"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
)

// Deliver encodes x as one value of a tensor, with a new encoder, and returns the encoding and the values that it
// decodes to.
func Deliver(t testing.TB, c codecs.Codec, x []float32) (encoded []byte, y []float32) {
	t.Helper()
	e, d := methodPair(t, c, len(x))
	encoded, err := e.Append(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	y = make([]float32, len(x))
	if err := d.Decode(y, encoded); err != nil {
		t.Fatal(err)
	}
	return encoded, y
}

func methodPair(t testing.TB, c codecs.Codec, n int) (codecs.ValueEncoder, codecs.ValueDecoder) {
	t.Helper()
	m, ok := codecs.MethodOf(c)
	if !ok {
		t.Fatalf("%v is not a codec of values", c)
	}
	e, err := m.NewEncoder(n)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.NewDecoder(n)
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

// Unbiased delivers x many times, each drawn anew by one encoder, and checks that the delivered values are x on
// average, as well as so many draws can tell, and that their mean squared error is want, which is ‖x-y‖² over all
// values. Use thousands of values, so that no few of them dominate the error.
func Unbiased(t *testing.T, c codecs.Codec, x []float32, want float64) {
	t.Helper()
	const times = 400
	e, d := methodPair(t, c, len(x))
	mean, y := make([]float64, len(x)), make([]float32, len(x))
	var encoded []byte
	var squares float64
	for range times {
		var err error
		if encoded, err = e.Append(encoded[:0], x); err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(y, encoded); err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			off := float64(v) - float64(x[i])
			mean[i] += float64(v) / times
			squares += off * off / times
		}
	}
	var bias, along, norm float64
	for i, v := range mean {
		off := v - float64(x[i])
		bias += off * off
		along += v * float64(x[i])
		norm += float64(x[i]) * float64(x[i])
	}
	t.Logf("%v: the squared error is %.4g, want %.4g; of %d draws' mean %.3f of a %dth of it; along x %.5f", c, squares, want, times, bias*times/squares, times, along/norm)
	if math.Abs(squares/want-1) > 0.03 {
		t.Errorf("%v: the mean squared error is %v, want %v", c, squares, want)
	}
	// If E y = x, the mean of so many draws has the error of one over their number, all of it by chance.
	if ratio := bias * times / squares; ratio > 1.25 {
		t.Errorf("%v: %d draws are off by %.3f times as much as chance allows", c, times, ratio)
	}
	if off := math.Abs(along/norm - 1); off > 5*math.Sqrt(squares/norm/times/float64(len(x)))+1e-6 {
		t.Errorf("%v: on average %.5f of x is delivered", c, along/norm)
	}
}
