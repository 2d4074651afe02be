package gloo

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A sum of 999 elements is never a gradient, one of 1000 elements is, whatever the width of an element and whether tags
// count the collectives or not.
func TestSmallSumsAreNoGradients(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64} {
		for _, tags := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/tags=%t", d, tags), func(t *testing.T) {
				trace := gloosim.Run(gloosim.Job{Ranks: 2, Tags: tags, Calls: repeatSteps(8, func(s int) []gloosim.Call {
					return []gloosim.Call{gloosim.Gradients("large", s, 20_000, d), gloosim.Gradients("999", s, 999, d),
						gloosim.Gradients("1000", s, 1000, d), gloosim.Gradients("other", s, 7000, d)}
				})})
				all, err := play(t, trace, parser.Conn{Job: "job", Ranks: 2, Sums: parser.SumsGradients})
				if err != nil {
					t.Fatal(err)
				}
				gradients := map[string]int{}
				for _, m := range all {
					if m.value.Role == tensor.Gradient {
						gradients[m.Name]++
					}
				}
				if gradients["999"] > 0 || gradients["1000"] == 0 || gradients["large"] == 0 {
					t.Errorf("messages called gradients: %v", gradients)
				}
			})
		}
	}
	for elements, want := range map[int]tensor.Role{minElements - 1: tensor.Exact, minElements: tensor.Gradient} {
		r := reading{key: 1, size: 4 * elements, phased: true, first: true, verdicts: [2]verdict{isFloat32, isFloat32}}
		if got, _, _ := r.role(true); got != want {
			t.Errorf("a sum of %d elements is %v, want %v", elements, got, want)
		}
	}
	if minElements != 1000 {
		t.Errorf("the package comment and docs/loss.md say 1000 elements, not %d", minElements)
	}
}
