package send

import (
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// The result of a sum is compared with a whole message that has the app's input, of a tensor whose content must vouch
// for it, in a job that may still lose something.
func TestInputsOfSumsAreCompared(t *testing.T) {
	const size = 1 << 14
	data := gradient(rand.New(rand.NewPCG(5, 6)), size/4)
	for name, c := range map[string]struct {
		change func(x *tensor.Tensor, s *testSender, b *block)
		ok     bool
	}{
		"the app's input":              {func(*tensor.Tensor, *testSender, *block) {}, true},
		"of no message":                {func(x *tensor.Tensor, _ *testSender, _ *block) { x.Part = 0 }, false},
		"a result":                     {func(x *tensor.Tensor, _ *testSender, _ *block) { x.Whole = true }, false},
		"called by DDP":                {func(x *tensor.Tensor, _ *testSender, _ *block) { x.Proof = tensor.ByCall }, false},
		"a part of a message":          {func(_ *tensor.Tensor, _ *testSender, b *block) { b.data = data[:size/2] }, false},
		"in a job that is doubted":     {func(_ *tensor.Tensor, s *testSender, _ *block) { s.choose.past.job.Doubt() }, false},
		"in no job":                    {func(_ *tensor.Tensor, s *testSender, _ *block) { s.choose.past.job = nil }, false},
		"of a type that has no floats": {func(x *tensor.Tensor, _ *testSender, _ *block) { x.DType = tensor.Int32 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSender(t, pathtest.Toy{}, policy.Rule{Roles: []tensor.Role{tensor.Gradient}, Codec: "int8"})
			p, _ := planned(s, tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: size, Proof: tensor.ByWire, Part: 7})
			b := s.choose.block(&p, 0, size, false)
			b.data = data
			c.change(&p.t, s, b)
			if _, ok := s.choose.contribution(b); ok != c.ok {
				t.Errorf("compared with the result: %v", ok)
			}
		})
	}
}
