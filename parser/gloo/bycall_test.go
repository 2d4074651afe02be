package gloo

import (
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// noCalls are the calls of a process that has called nothing.
type noCalls struct{}

func (noCalls) Of(into []parser.Call, _ uint32) ([]parser.Call, bool) { return into, true }
func (noCalls) Proved()                                               {}
func (noCalls) Contradicted(string)                                   {}

// A message tells the type that its call has, unless it is none of the call's. A value that may lose something soon has
// no key yet, so that the first one is compared with none before it. A call settles no role where a message strays.
func TestRolesByCall(t *testing.T) {
	for name, x := range map[string]struct {
		call  called
		dtype tensor.DType
		role  tensor.Role
		key   uint64
		sees  bool
	}{
		"another caller's": {called{verdict: callOther, dtype: tensor.Float32, fits: []*candidate{{}}}, tensor.Float32, tensor.Unknown, 7, true},
		"one that strays":  {called{verdict: callUnclear, dtype: tensor.Float32, fits: []*candidate{{}}, strays: true}, tensor.NoDType, tensor.Unknown, 7, false},
		"no sum":           {called{verdict: callNoSum, dtype: tensor.Float64, fits: []*candidate{{}}}, tensor.Float64, tensor.Exact, 7, true},
		"learning":         {called{verdict: callLearning, dtype: tensor.Float16, fits: []*candidate{{}}}, tensor.Float16, tensor.Unknown, 0, true},
		"of no known type": {called{verdict: callType}, tensor.NoDType, tensor.Unknown, 7, false},
	} {
		c := counted{flow: flow{conn: &common{}}, proof: proof{calls: noCalls{}}, history: []observedReduce{{tag: 3, call: x.call}}}
		v := tensor.Tensor{Key: 7}
		c.byCall(&v, &c.history[0], 0)
		if v.DType != x.dtype || v.Role != x.role || v.Key != x.key || v.Origin != 0 {
			t.Errorf("%s: %+v", name, v)
		}
		if got := c.sees(3); got != x.sees || c.sees(4) {
			t.Errorf("%s: its role is settled: %v", name, got)
		}
	}
}
