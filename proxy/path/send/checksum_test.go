package send

import (
	"bytes"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Gradients that a CRC-32 covers lose something, and yet each one arrives with the CRC-32 that it was sent with: dense
// and nearly zero ones, ones with which a residual is flushed, and ones that no codec takes. A tensor of fewer elements
// than a CRC-32 needs loses nothing.
func TestLossKeepsTheChecksum(t *testing.T) {
	const steps, infinite = 16, 9
	for _, c := range []struct {
		codec   string
		dtype   tensor.DType
		n       int
		flush   int
		share   float64 // of elements that are not zero
		changed int     // values that arrive as others, at least
	}{
		{"3lc(s=1.75)", tensor.Float32, 5000, 0, 1, 14}, {"int8", tensor.Float16, 5000, 0, 1, 14}, {"int8", tensor.Float32, 16 << 10, 0, 0.1, 14},
		{"int8", tensor.Float32, 16 << 10, 0, 0.01, 0}, {"3lc(s=1.75)", tensor.Float32, 5000, 3, 1, 14}, {"3lc(s=1.75)", tensor.Float64, 5000, 3, 1, 14},
		{"qsgd", tensor.Float32, 5000, 0, 1, 14}, {"int8", tensor.Float32, coder.SumElements, 0, 1, 10}, {"int8", tensor.Float32, coder.SumElements - 1, 0, 1, 0},
	} {
		rule := policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: c.codec, FlushEvery: c.flush}
		s := newTestSender(t, pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByUpdate, DType: c.dtype, CRC32: true}, rule)
		r := rand.New(rand.NewPCG(3, uint64(c.n)))
		size := c.n * c.dtype.Size()
		sent := make([][]byte, steps)
		for step := range sent {
			v := make([]float32, c.n)
			for i := range v {
				if r.Float64() < c.share {
					v[i] = float32(r.NormFloat64())
				}
			}
			if step == infinite {
				v[c.n-1] = float32(math.Inf(1))
			}
			sent[step] = make([]byte, size)
			tensor.FromFloat32(sent[step], v, c.dtype)
			if err := s.takes(pathtest.ToyPiece(1, size, sent[step])); err != nil {
				t.Fatal(err)
			}
		}
		arrived := s.delivered(t)
		if len(arrived) != steps*(8+size) {
			t.Fatalf("%+v: %d bytes arrive", c, len(arrived))
		}
		changed := 0
		for step, v := range sent {
			got := arrived[step*(8+size)+8 : (step+1)*(8+size)]
			if crc32.ChecksumIEEE(got) != crc32.ChecksumIEEE(v) {
				t.Errorf("%+v: value %d arrives with another CRC-32", c, step)
			}
			if !bytes.Equal(got, v) {
				changed++
			}
		}
		if changed < c.changed || c.changed == 0 && changed > 0 {
			t.Errorf("%+v: %d values arrive as others", c, changed)
		}
		pathtest.Whole(t, s.env)
	}
}

// Where a CRC-32 could not be kept nothing is lost, and the reason is told: of differences of state, of rows, and to a
// peer that does not understand the blocks.
func TestChecksumsThatCannotBeKept(t *testing.T) {
	lossy := policy.Rule{Roles: []tensor.Role{tensor.Gradient, tensor.State}, Codec: "int8"}
	gradient := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16, CRC32: true}
	state, rows, short := gradient, gradient, gradient
	state.Role, state.Base, rows.Keys, short.Size = tensor.State, 1, 9, 4*coder.SumElements-4
	for name, c := range map[string]struct {
		tensor tensor.Tensor
		peer   []string
		want   string
		why    tensor.Reason
	}{
		"a gradient":       {gradient, nil, "int8", tensor.OK},
		"to a peer of old": {gradient, []string{"lossless", "int8"}, "lossless", tensor.PeerLacks},
		"to one of now":    {gradient, []string{"lossless", "int8", coder.Checksums}, "int8", tensor.OK},
		"state":            {state, nil, "lossless", tensor.Checksum},
		"rows":             {rows, nil, "lossless", tensor.Checksum},
		"a short one":      {short, nil, "lossless", tensor.Checksum},
		"without a CRC-32": {tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: 1 << 16}, []string{"lossless", "int8"}, "int8", tensor.OK},
		"no gradient":      {tensor.Tensor{Key: 1, Role: tensor.Exact, DType: tensor.Float32, Size: 1 << 16, CRC32: true}, nil, "lossless", tensor.NoRule},
	} {
		s := newTestSender(t, pathtest.Toy{}, lossy)
		s.direction.conn.PeerCodecs = c.peer
		if p, got := planned(s, c.tensor); got != c.want || p.choice.Why != c.why {
			t.Errorf("%s travels by %s (%v), want %s (%v)", name, got, p.choice.Why, c.want, c.why)
		}
	}
}
