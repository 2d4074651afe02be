package sparse_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/internal/asm/asmtest"
	"github.com/gradproxy/gradproxy/codecs/internal/sparse"
	"github.com/gradproxy/gradproxy/codecs/topk"
	"github.com/gradproxy/gradproxy/tensor"
)

// everySecond sends every second value of a block, as bfloat16.
type everySecond struct{}

func (everySecond) String() string { return "every-second" }

func (everySecond) Traits() codecs.Traits { return codecs.Traits{} }

func (everySecond) AppendBlock(dst []byte, x []float32, _ uint64, p *sparse.Picks) ([]byte, error) {
	p.Keys, p.Values = p.Keys[:0], p.Values[:0]
	for i := 0; i < len(x); i += 2 {
		p.Keys, p.Values = append(p.Keys, uint32(i)), append(p.Values, x[i])
	}
	return sparse.AppendPairs(dst, p, tensor.BFloat16)
}

func (everySecond) DecodeBlock(x []float32, src []byte, p *sparse.Picks) ([]byte, error) {
	return sparse.DecodePairs(x, src, tensor.BFloat16, p)
}

// How many values a fraction is: to the nearest, at least one, at most all.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		k       float64
		n, want int
	}{
		{0.01, 1000, 10}, {0.01, 1049, 10}, {0.01, 1050, 11}, {0.07, 100, 7}, {1e-9, 5, 1}, {1, 7, 7}, {0.25, 2, 1}, {1, 1, 1},
	} {
		if got := sparse.Count(c.k, c.n); got != c.want {
			t.Errorf("%v of %d values: %d, want %d", c.k, c.n, got, c.want)
		}
	}
}

// A residual is the sum where no value was sent, and the rounding error where one was.
func TestResidual(t *testing.T) {
	const n, block = 7, 3
	enc := sparse.NewEncoder(everySecond{}, n, block).(codecs.Fused)
	x := []float32{1, 2, 1 + 0x1p-9, 4, 5, 6, 7}
	residual := []float32{0, 10, 0, 0, 10, 0, 0}
	b, err := enc.AppendFeedback(nil, x, residual, tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	// Blocks of values 0-2, 3-5 and 6: of each the first and third are sent.
	if want := []float32{0, 12, 0x1p-9, 0, 15, 0, 0}; !slices.Equal(residual, want) {
		t.Errorf("the residual is %v, want %v", residual, want)
	}
	y := make([]float32, n)
	if err := sparse.NewDecoder(everySecond{}, n, block).Decode(y, b); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 0, 1, 4, 0, 6, 7}; !slices.Equal(y, want) {
		t.Errorf("delivered are %v, want %v", y, want)
	}
}

// A block that is unsuited leaves the residuals of the blocks before it as they were, and dst as well.
func TestUnsuitedLeavesAllBlocks(t *testing.T) {
	const n, block = 6, 3
	enc := sparse.NewEncoder(everySecond{}, n, block).(codecs.Fused)
	residual := []float32{1, 2, 3, 4, 5, 6}
	before := slices.Clone(residual)
	b, err := enc.AppendFeedback([]byte("before"), []float32{1, 1, 1, 1, 1, float32(math.Inf(1))}, residual, tensor.Float32)
	if !errors.Is(err, codecs.ErrUnsuited) || string(b) != "before" || !slices.Equal(residual, before) {
		t.Errorf("%v; dst is %q, the residual %v", err, b, residual)
	}
}

// An unsuited block of a SumCoder does so as well, at every place.
func TestUnsuitedSumsLeaveAllBlocks(t *testing.T) {
	const n, block = 1000, 300
	c, err := topk.New(topk.Config{K: 0.3, Block: block})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 299, 300, 500, 999} {
		x, residual := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], residual[i] = float32(i%7)+1e-9, float32(i%11)/3
		}
		x[at] = float32(math.Inf(1))
		asmtest.Each(t, func(t *testing.T) {
			method, _ := codecs.MethodOf(c)
			enc, err := method.NewEncoder(n)
			if err != nil {
				t.Fatal(err)
			}
			after := slices.Clone(residual)
			b, err := enc.(codecs.Fused).AppendFeedback([]byte("before"), x, after, tensor.Float32)
			if !errors.Is(err, codecs.ErrUnsuited) || string(b) != "before" || !slices.Equal(after, residual) {
				t.Errorf("value %d is infinite: %v; dst is %q, the residual %v", at, err, b, after)
			}
		})
	}
}

// A block is unsuited if its encoding would be longer than its values and 16 bytes.
func TestNoGainIsUnsuited(t *testing.T) {
	const n = 4096
	all := sparse.NewEncoder(everything{}, n, n)
	if _, err := all.Append(nil, make([]float32, n)); !errors.Is(err, codecs.ErrUnsuited) {
		t.Errorf("%v, want ErrUnsuited", err)
	}
	if limit := sparse.MaxEncodedLen(n, 1000); limit != 4*n+5*16 {
		t.Errorf("MaxEncodedLen says %d", limit)
	}
}

// everything sends every value of a block, with its position.
type everything struct{ everySecond }

func (everything) AppendBlock(dst []byte, x []float32, _ uint64, p *sparse.Picks) ([]byte, error) {
	p.Keys, p.Values = p.Keys[:0], p.Values[:0]
	for i, v := range x {
		p.Keys, p.Values = append(p.Keys, uint32(i)), append(p.Values, v)
	}
	return sparse.AppendPairs(dst, p, tensor.Float32)
}
