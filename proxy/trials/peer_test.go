package trials

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/tensor"
)

// Trials send a peer nothing that it does not have: no short form if it is of before, and nothing by a candidate that
// it lacks.
func TestTrialsKnowThePeersCodecs(t *testing.T) {
	all := []string{"lossless", "int8", cache.Name, cache.Parts, cache.Short, coder.Short}
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(x string) bool { return x == name })
	}
	gradient := tensor.Tensor{Key: 7, Role: tensor.Gradient, Proof: tensor.ByCall}
	state := tensor.Tensor{Key: 7, Base: 7, Role: tensor.State}
	for name, c := range map[string]struct {
		t                tensor.Tensor
		has              []string
		minimum, maximum float64
	}{
		"gradients, all":               {gradient, nil, 0.20, 0.24},
		"gradients, all by name":       {gradient, all, 0.20, 0.24},
		"gradients, no short blocks":   {gradient, without(coder.Short), 0.24, 0.27},
		"gradients, not the candidate": {gradient, without("int8"), 0.27, 0.6},
		"weights, all":                 {state, nil, 0.20, 0.24},
		"weights, no short values":     {state, without(cache.Short), 0.24, 0.27},
		"weights, no values":           {state, without(cache.Name), 0.8, 1.01},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := wireOf(t, c.t, c.has)
				t.Logf("%.3f", got)
				if got < c.minimum || got > c.maximum {
					t.Errorf("%.3f of the bytes are predicted, want %.2f to %.2f", got, c.minimum, c.maximum)
				}
			})
		})
	}
}

// wireOf returns which part of the bytes of a tensor int8 makes to a peer that has some codecs. A third of each
// gradient's elements, and of each difference of weights, is not 0.
func wireOf(t *testing.T, x tensor.Tensor, has []string) float64 {
	trials := newTrials(t)
	if err := trials.Try([]string{"int8"}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 4096)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	raw := make([]byte, 4*len(values))
	x.DType, x.Size, x.Hold = tensor.Float32, len(raw), len(raw)
	seen := trials.Watch("tokyo", has)
	defer seen.Close()
	for range 80 {
		for i := range values {
			if x.Role == tensor.Gradient {
				values[i] = 0
			}
			if r.IntN(3) == 0 {
				values[i] += float32(r.NormFloat64())
			}
		}
		tensor.FromFloat32(raw, values, tensor.Float32)
		seen.See(policy.Flow{Protocol: "toy"}, &x, raw)
		time.Sleep(time.Second) // in the bubble: until the trial of this value is done
	}
	name := shadow.Name{Protocol: "toy", Direction: policy.Flow{}.Direction.String(), Key: x.Key, Role: x.Role, Size: len(raw)}
	result := trials.current.Load().Results().Of(name)
	if len(result) != 1 || result[0].Raw == 0 {
		t.Fatalf("%+v", result)
	}
	return float64(result[0].Wire) / float64(result[0].Raw)
}
