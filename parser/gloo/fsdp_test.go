package gloo

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A fsdpModel is a model that PyTorch's fully_shard cuts into units of that many elements: the root's, then the layers'.
type fsdpModel struct {
	name    string
	ranks   int
	units   []int
	weights tensor.DType // as they are gathered
}

var fsdpModels = []fsdpModel{
	{"units", 2, []int{1500, 6000, 2400}, tensor.Float32},
	{"equal layers", 2, []int{1500, 2400, 2400, 2400, 2400}, tensor.BFloat16},
	{"two equal layers", 3, []int{1500, 2400, 2400}, tensor.Float32},
}

// forward gathers the weights of each unit.
func (m *fsdpModel) forward(s int) (c []gloosim.Call) {
	for u := range m.units {
		c = append(c, m.gather(s, u))
	}
	return c
}

func (m *fsdpModel) gather(s, u int) gloosim.Call {
	return gloosim.Gather(fmt.Sprint("weights ", u), s, m.units[u]/m.ranks, m.weights)
}

// backward gathers the weights of the layers again, each before the gradients of the layer behind it are summed.
func (m *fsdpModel) backward(s int) (c []gloosim.Call) {
	last := len(m.units) - 1
	c = append(c, m.gather(s, last))
	for u := last; u >= 0; u-- {
		if u > 1 {
			c = append(c, m.gather(s, u-1))
		}
		c = append(c, gloosim.Gradients(fmt.Sprint("unit ", u), s, m.units[u], tensor.Float32))
	}
	return c
}

// An aside is what a job of FSDP calls in some of its steps: before the forward pass, between the two passes, and after the backward pass.
type aside struct {
	name                   string
	before, between, after func(s int) []gloosim.Call
}

// job returns the calls of a job with an aside in some of its steps. All of them wait, as PyTorch's do where async_op is not set.
func (m *fsdpModel) job(steps int, a aside, in func(s int) bool) []gloosim.Call {
	return repeatSteps(steps, func(s int) (c []gloosim.Call) {
		add := func(calls func(s int) []gloosim.Call) {
			if calls != nil && in(s) {
				c = append(c, calls(s)...)
			}
		}
		add(a.before)
		c = append(c, m.forward(s)...)
		add(a.between)
		c = append(c, m.backward(s)...)
		add(a.after)
		for i := range c {
			c[i].Wait = true
		}
		return c
	})
}

// asides returns what users call beside the training: barriers, sums of statistics and losses, objects, broadcasts, evaluations.
func (m *fsdpModel) asides() []aside {
	type calls = func(s int) []gloosim.Call
	one := func(f func(s int) gloosim.Call) calls {
		return func(s int) []gloosim.Call { return []gloosim.Call{f(s)} }
	}
	all := func(parts ...calls) calls {
		return func(s int) (c []gloosim.Call) {
			for _, x := range parts {
				c = append(c, x(s)...)
			}
			return c
		}
	}
	barrier := one(func(s int) gloosim.Call {
		return gloosim.Call{Op: gloosim.Barrier, Name: "barrier", Step: s, Role: tensor.Exact}
	})
	sum := one(func(s int) gloosim.Call { return gloosim.Ints("hits", s, 1550, tensor.Int64) })
	other := one(func(s int) gloosim.Call { return gloosim.Ints("misses", s, 1800, tensor.Int64) })
	changing := one(func(s int) gloosim.Call { return gloosim.Ints("tokens", s, 1000+16*s, tensor.Int64) })
	loss := one(func(s int) gloosim.Call { return gloosim.Ints("loss", s, 1, tensor.Int64) })
	objects := func(n int) calls { // as torch.distributed.all_gather_object does, of objects of changing size
		return all(one(func(s int) gloosim.Call { return gloosim.Gather("sizes of objects", s, 2, tensor.Float32) }),
			one(func(s int) gloosim.Call { return gloosim.Gather("objects", s, n+s, tensor.Float32) }))
	}
	broadcast := func(n int) calls { return one(func(s int) gloosim.Call { return gloosim.Sync("broadcast", s, n) }) }
	return []aside{
		{name: "small sum", after: loss},
		{name: "two sums", after: all(sum, other)},
		{name: "sum and loss", after: all(loss, sum)},
		{name: "sum of changing size", after: changing},
		{name: "barrier", after: barrier},
		{name: "barriers around a sum", after: all(barrier, sum, barrier)},
		{name: "barrier before, sum after", before: barrier, after: sum},
		{name: "barrier between the passes, sum after", between: barrier, after: sum},
		{name: "sum between the passes", between: sum},
		{name: "sums between the passes and after", between: sum, after: other},
		{name: "objects and sum", after: all(objects(60), sum)},
		{name: "large objects and sum", after: all(objects(5000), sum)},
		{name: "broadcast", before: broadcast(1000)},
		{name: "broadcasts and sum", before: all(broadcast(2), broadcast(4000)), after: sum},
		{name: "evaluation", after: m.forward},
		{name: "evaluation, sum, loss, objects and barrier", after: all(m.forward, sum, loss, objects(60), barrier)},
	}
}

// A job of FSDP is coded from its third step on, and each tensor keeps its key, whatever else it calls in some of its steps. Among more than two ranks a
// broadcast does not pass between all neighbours: after one the first of several equal layers then may travel exactly.
func TestFSDPWithOtherCollectives(t *testing.T) {
	require.OneGoroutine(t)
	whens := map[string]func(s int) bool{
		"each step":                  func(int) bool { return true },
		"every second":               func(s int) bool { return s%2 == 1 },
		"every third from the first": func(s int) bool { return s%3 == 0 },
		"some":                       func(s int) bool { return slices.Contains([]int{1, 2, 5}, s) },
	}
	for _, m := range fsdpModels {
		for _, a := range m.asides() {
			for when, in := range whens {
				t.Run(fmt.Sprintf("%s/%s/%s", m.name, a.name, when), func(t *testing.T) {
					keys, found, of := keysOf(t, m.ranks, 2, m.job(8, a, in))
					limit := of
					if m.ranks > 2 && (a.name == "broadcast" || a.name == "broadcasts and sum") {
						limit = of * 9 / 10
					}
					if found < limit {
						t.Errorf("%d of %d bytes of gradients found", found, of)
					}
					for name, k := range keys {
						if len(k) != 1 {
							t.Errorf("%s has %d keys", name, len(k))
						}
					}
				})
			}
		}
	}
}
