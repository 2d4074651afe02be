package gloo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// A seen message is a simulated one with the tensor that the proxy beside its sender returned for it.
type seen struct {
	*gloosim.Message
	conn  int
	value tensor.Tensor
	final tensor.Role // after the content check
}

// A site is the proxy of one rank: it runs both parsers of each of the rank's connections.
type site struct {
	protocol Protocol
	parsers  map[int][2]parser.Parser // by connection, then direction
}

// play gives a trace to one proxy per rank. An event passes the proxy beside its sender first, then the receiver's.
func play(t testing.TB, trace *gloosim.Trace, conn parser.Conn) ([]seen, error) {
	t.Helper()
	sites := map[int]*site{}
	for i, c := range trace.Conns {
		for side, rank := range []int{c.Client, c.Server} {
			s := sites[rank]
			if s == nil {
				s = &site{parsers: map[int][2]parser.Parser{}}
				sites[rank] = s
			}
			pc := conn
			pc.Client, pc.Server, pc.Own, pc.Peer = c.ClientAddr, c.ServerAddr, parser.Side(side), fmt.Sprint("of rank ", c.Client+c.Server-rank)
			client, server := s.protocol.New(pc)
			s.parsers[i] = [2]parser.Parser{client, server}
		}
	}
	var all []seen
	trust := map[uint64]*tensor.Trust{}
	last := map[uint64][]byte{}
	for _, e := range trace.Events {
		c := trace.Conns[e.Conn]
		near, far := sites[c.Client], sites[c.Server]
		if e.From == parser.Server {
			near, far = far, near
		}
		v, err := next(near.parsers[e.Conn][e.From], e.Bytes)
		if err != nil {
			return all, err
		}
		if _, err := next(far.parsers[e.Conn][e.From], e.Bytes); err != nil {
			return all, fmt.Errorf("the far proxy: %w", err)
		}
		if e.Message == nil {
			continue
		}
		if v.Size != len(e.Message.Bytes) {
			t.Fatalf("a payload of %d bytes was taken for one of %d", len(e.Message.Bytes), v.Size)
		}
		m := seen{Message: e.Message, conn: e.Conn, value: v, final: v.Role}
		if v.Key != 0 {
			if trust[v.Key] == nil {
				trust[v.Key] = new(tensor.Trust)
			}
			kept := make([]byte, tensor.KeptSize(v.DType, len(last[v.Key])))
			tensor.Keep(v.DType, kept, last[v.Key])
			if trust[v.Key].Judge(v.DType, m.Bytes, kept, nil) != tensor.Fits && (v.Role == tensor.Gradient || v.Role == tensor.Aggregate) {
				m.final = tensor.Unknown
			}
			last[v.Key] = m.Bytes
		} else if v.Role != tensor.Exact {
			m.final = tensor.Unknown
		}
		all = append(all, m)
	}
	return all, nil
}

// next gives b to a parser and returns the last tensor that began in it.
func next(p parser.Parser, b []byte) (v tensor.Tensor, err error) {
	for len(b) > 0 {
		seg, err := p.Next(b)
		if err != nil {
			return v, err
		}
		if seg.Tensor.Size > 0 && seg.Tensor.Off == 0 {
			v = seg.Tensor
		}
		b = b[seg.Len:]
	}
	return v, nil
}

// A scenario is a job and the result that it must have.
type scenario struct {
	name   string
	ranks  int
	tags   bool
	calls  []gloosim.Call
	config int // configured ranks
	share  int // per cent of phase 1's gradient bytes, from the third step on, that must be found; or none, whatever
	job    string
	large  bool // too much for the race detector, and for more than one seed
}

const (
	none     = -1
	whatever = -2
)

func repeatSteps(steps int, step func(s int) []gloosim.Call) (calls []gloosim.Call) {
	for s := range steps {
		calls = append(calls, step(s)...)
		calls[len(calls)-1].Wait = true
	}
	return calls
}

// mlp has the shapes of a small perceptron, 20 170 elements.
var mlp = [][]int64{{80, 64}, {80}, {120, 80}, {120}, {40, 120}, {40}, {10, 40}, {10}}

func scenarios() []scenario {
	g, f32 := gloosim.Gradients, tensor.Float32
	var all []scenario
	add := func(s scenario) {
		if s.share == 0 {
			s.share = 80
		}
		if s.job == "" {
			s.job = "job"
		}
		all = append(all, s)
	}
	for _, n := range []int{2, 3, 4} {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16, tensor.Float64} {
			ddp := gloosim.DDP{Shapes: mlp, DType: d, Steps: 5, Buckets: [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}, Buffers: 256}
			add(scenario{name: fmt.Sprintf("DDP, %d ranks, %v", n, d), ranks: n, tags: true, calls: ddp.Calls()})
		}
		ddp := gloosim.DDP{Shapes: mlp, DType: f32, Steps: 5}
		ddp.Buckets = [][]int{{7, 6, 5, 4, 3, 2, 1, 0}}
		ddp.After = func(s int) []gloosim.Call {
			return []gloosim.Call{gloosim.Ints("hits", s, 2, tensor.Int64), g("loss", s, 1, f32)}
		}
		add(scenario{name: fmt.Sprintf("DDP of one bucket with metrics, %d ranks", n), ranks: n, tags: true, calls: exactly(ddp.Calls(), "loss")})
		unused := gloosim.DDP{Shapes: mlp, DType: f32, Steps: 5, Unused: true, Buffers: 128}
		add(scenario{name: fmt.Sprintf("DDP with unused parameters, %d ranks", n), ranks: n, tags: true, calls: unused.Calls()})
		unused.Buckets = [][]int{{7, 6, 5}, {4, 3, 2}, {1, 0}}
		for i, b := range unused.Buckets {
			for a, z := 0, len(b)-1; a < z; a, z = a+1, z-1 {
				unused.Buckets[i][a], unused.Buckets[i][z] = b[z], b[a]
			}
		}
		add(scenario{name: fmt.Sprintf("DDP with unused parameters and small buckets, %d ranks", n), ranks: n, tags: true, calls: unused.Calls()})
		equal := gloosim.DDP{Shapes: [][]int64{{60, 100}, {60, 100}, {60, 100}, {60, 100}}, DType: f32, Steps: 6, Buckets: [][]int{{3}, {2}, {1}, {0}}}
		add(scenario{name: fmt.Sprintf("DDP of equal buckets, %d ranks", n), ranks: n, tags: true, calls: equal.Calls()})
		large := gloosim.DDP{Shapes: [][]int64{{1000, 1700}, {100, 200}}, DType: f32, Steps: 4, Buckets: [][]int{{1}, {0}}}
		add(scenario{name: fmt.Sprintf("DDP of a large bucket, %d ranks", n), ranks: n, large: true, tags: true, calls: large.Calls()})
		add(scenario{name: fmt.Sprintf("FSDP, %d ranks", n), ranks: n, tags: true, calls: repeatSteps(5, func(s int) (c []gloosim.Call) {
			for i, size := range []int{9000, 18_000, 18_000, 18_000, 3000} {
				c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/n, f32))
			}
			for i, size := range []int{3000, 18_000, 18_000, 18_000, 9000} {
				c = append(c, gloosim.Gather(fmt.Sprint("weights ", 4-i), s, size/n, f32), g(fmt.Sprint("shard ", i), s, size, f32))
			}
			return c
		})})
		add(scenario{name: fmt.Sprintf("plain sums, %d ranks", n), ranks: n, tags: true, calls: repeatSteps(6, func(s int) []gloosim.Call {
			return []gloosim.Call{g("a", s, 15_000, f32), g("b", s, 6000, f32), {Op: gloosim.Skip}, gloosim.Ints("flags", s, 3000, tensor.Int32)}
		})})
		jax := func(s int) []gloosim.Call {
			return []gloosim.Call{g("w0", s, 11264, f32), g("b0", s, 176, f32), g("w1", s, 30976, f32), g("b1", s, 176, f32), g("w2", s, 1760, f32),
				g("b2", s, 10, f32), g("loss", s, 1, f32)}
		}
		add(scenario{name: fmt.Sprintf("JAX, %d ranks", n), ranks: n, calls: exactly(repeatSteps(5, jax), "loss"), config: n})
		add(scenario{name: fmt.Sprintf("JAX, %d ranks, not configured", n), ranks: n, calls: exactly(repeatSteps(5, jax), "loss")})
		add(scenario{name: fmt.Sprintf("JAX of equal layers, %d ranks", n), ranks: n, config: n, calls: exactly(repeatSteps(6, func(s int) (c []gloosim.Call) {
			for i := range 5 {
				c = append(c, g(fmt.Sprint("w", i), s, 10_000, f32), g(fmt.Sprint("b", i), s, 4000, f32))
			}
			return append(c, g("head", s, 3000, f32), g("loss", s, 1, f32))
		}), "loss")})
		add(scenario{name: fmt.Sprintf("JAX of large arrays, %d ranks", n), ranks: n, large: true, config: n, calls: exactly(repeatSteps(4, func(s int) []gloosim.Call {
			return []gloosim.Call{g("w0", s, 1_100_007, f32), g("w1", s, 90_000, f32), g("loss", s, 1, f32)}
		}), "loss")})
		add(scenario{name: fmt.Sprintf("averaged weights, %d ranks", n), ranks: n, tags: true, share: none, calls: repeatSteps(6, func(s int) []gloosim.Call {
			return []gloosim.Call{gloosim.Weights("model", s, 20_000, f32)}
		})})
		add(scenario{name: fmt.Sprintf("averaged weights, constant tags, %d ranks", n), ranks: n, share: none, config: n, calls: repeatSteps(10, func(s int) []gloosim.Call {
			return []gloosim.Call{gloosim.Weights("a", s, 20_000, f32), gloosim.Weights("b", s, 9_000, f32), gloosim.Weights("c", s, 3_000, f32)}
		})})
	}
	return append(all, traps()...)
}

// traps are jobs with something that looks like a gradient and is not. The loss of true gradients beside it differs.
func traps() []scenario {
	g, f32 := gloosim.Gradients, tensor.Float32
	metric := func(s, n int) gloosim.Call {
		c := gloosim.Weights("metric", s, n, f32)
		c.Role = tensor.Exact
		return c
	}
	noise := func(s, n int) gloosim.Call { // nothing but its place tells it from a gradient
		c := g("noise", s, n, f32)
		c.Role = tensor.Exact
		return c
	}
	two := [][]int{{7, 6, 5, 4}, {3, 2, 1, 0}}
	const first, second = 5250, 14_920 // elements of these buckets
	ddp := func(buckets [][]int, before, after func(s int) []gloosim.Call) []gloosim.Call {
		return gloosim.DDP{Shapes: mlp, DType: f32, Steps: 6, Buckets: buckets, Before: before, After: after}.Calls()
	}
	calls := func(f func(s int) gloosim.Call) func(s int) []gloosim.Call {
		return func(s int) []gloosim.Call { return []gloosim.Call{f(s)} }
	}
	jax := func(s int) []gloosim.Call {
		return []gloosim.Call{g("w0", s, 15_000, f32), g("w1", s, 6000, f32), g("w2", s, 6000, f32), g("w3", s, 4000, f32)}
	}
	var all []scenario
	for _, n := range []int{2, 3} {
		add := func(name string, tags bool, share int, calls []gloosim.Call) {
			all = append(all, scenario{name: fmt.Sprintf("%s, %d ranks", name, n), ranks: n, tags: tags, share: share, calls: calls, config: n, job: "job",
				large: strings.Contains(name, "1 MiB")})
		}
		add("a metric of the first bucket's size after it", true, 80, ddp(two, nil, calls(func(s int) gloosim.Call { return noise(s, first) })))
		add("a metric of the first bucket's size before it", true, whatever, ddp(two, calls(func(s int) gloosim.Call { return noise(s, first) }), nil))
		add("a metric of the last bucket's size", true, 80, ddp(two, nil, calls(func(s int) gloosim.Call { return noise(s, second) })))
		add("a metric of the first bucket's size now and then", true, whatever, ddp(two, nil, func(s int) []gloosim.Call {
			if s%2 == 0 {
				return []gloosim.Call{noise(s, first)}
			}
			return []gloosim.Call{{Op: gloosim.Skip}}
		}))
		add("a metric of the only bucket's size", true, whatever, ddp([][]int{{7, 6, 5, 4, 3, 2, 1, 0}}, nil, calls(func(s int) gloosim.Call { return noise(s, first+second) })))
		add("a metric of another size", true, 80, ddp(two, nil, calls(func(s int) gloosim.Call { return noise(s, 20_000) })))
		add("a metric that changes little, of a bucket's size, from the fourth step on", true, whatever, ddp(two, nil, func(s int) []gloosim.Call {
			if s < 3 {
				return []gloosim.Call{{Op: gloosim.Skip}}
			}
			return []gloosim.Call{metric(s, first)}
		}))
		add("sums beside a DDP that announces no buckets", true, 80, gloosim.DDP{Shapes: mlp, DType: f32, Steps: 5, Unused: true,
			After: calls(func(s int) gloosim.Call { return noise(s, 20_000) })}.Calls())
		add("a used map in the fourth step", true, 80, ddp(two, nil, func(s int) []gloosim.Call {
			if s == 3 {
				return []gloosim.Call{gloosim.Ints("used", s, 8000, tensor.Int32)}
			}
			return []gloosim.Call{{Op: gloosim.Skip}}
		}))
		add("weights averaged in the steps of DDP", true, 80, ddp(two, nil, calls(func(s int) gloosim.Call { return gloosim.Weights("all", s, first+second, f32) })))
		add("post-local SGD of one bucket", true, whatever, append(
			gloosim.DDP{Shapes: mlp, DType: f32, Steps: 4, Buckets: [][]int{{7, 6, 5, 4, 3, 2, 1, 0}}}.Calls(),
			repeatSteps(6, func(s int) []gloosim.Call { return []gloosim.Call{gloosim.Weights("all", s+4, first+second, f32)} })...))
		add("post-local SGD without metadata", true, whatever, repeatSteps(10, func(s int) []gloosim.Call {
			if s < 4 {
				return []gloosim.Call{g("all", s, 20_000, f32)}
			}
			return []gloosim.Call{gloosim.Weights("all", s, 20_000, f32)}
		}))
		add("DDP from its second step on", true, 80, func() []gloosim.Call {
			c := ddp(two, nil, nil)
			for i := range 4 {
				c[i] = gloosim.Call{Op: gloosim.Skip, Wait: true}
			}
			for i := range c {
				c[i].Step-- // the first step seen is the job's second
			}
			return c
		}())
		add("FSDP with an evaluation now and then", true, 80, repeatSteps(6, func(s int) (c []gloosim.Call) {
			for i, size := range []int{6000, 18_000, 3000} {
				c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/n, f32), g(fmt.Sprint("shard ", i), s, size, f32))
			}
			if s == 3 {
				c = append(c, gloosim.Gather("weights again", s, 9000, f32), gloosim.Ints("hits", s, 3100, tensor.Int64))
			}
			return c
		}))
		add("JAX with an array of its own now and then", false, 50, repeatSteps(8, func(s int) []gloosim.Call {
			if s == 3 {
				c := metric(s, 7000)
				return append([]gloosim.Call{c}, jax(s)...)
			}
			return jax(s)
		}))
		add("JAX shifted by an array of a gradient's size", false, whatever, repeatSteps(8, func(s int) []gloosim.Call {
			if s == 4 {
				return append(jax(s), metric(s, 6000))
			}
			return jax(s)
		}))
		add("JAX of 1 MiB segments, shifted", false, whatever, repeatSteps(6, func(s int) []gloosim.Call {
			c := []gloosim.Call{g("w", s, 2<<20, f32), g("b", s, 4000, f32)}
			if s == 4 {
				return append([]gloosim.Call{metric(s, 1<<20)}, c...)
			}
			return c
		}))
	}
	return all
}

// exactly makes the all-reduces of that name something else than gradients.
func exactly(calls []gloosim.Call, name string) []gloosim.Call {
	for i := range calls {
		if calls[i].Name == name {
			calls[i].Role = tensor.Exact
		}
	}
	return calls
}

// Whatever the job, a message that is called a gradient is of the first phase of one, under a key that no other tensor
// of the step has and that it keeps; and in the jobs that this package claims to understand, most gradients are found.
func TestRolesOfSimulatedJobs(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			if require.Race && (s.large || s.ranks > 2) {
				t.Skip("needs a build without the race detector, under which these jobs of one goroutine take a minute")
			}
			if s.large {
				require.Long(t)
			}
			seeds := uint64(2)
			if s.large || require.Race {
				seeds = 1
			}
			for seed := range seeds {
				trace := gloosim.Run(gloosim.Job{Ranks: s.ranks, Calls: s.calls, Tags: s.tags, FirstID: seed%2 == 0, Seed: seed})
				all, err := play(t, trace, parser.Conn{Job: s.job, Ranks: s.config, Sums: parser.SumsGradients})
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				checkTruth(t, seed, all)
				if s.share >= 0 {
					checkKeys(t, seed, all)
				}
				found, trusted, of := shareFound(all)
				if testing.Verbose() {
					t.Logf("%d%% of %d", 100*found/max(1, of), of)
				}
				if s.share >= 0 && 100*found < s.share*of || s.share == none && trusted > 0 {
					t.Errorf("seed %d: %d of %d bytes of gradients found, and %d could lose something", seed, found, of, trusted)
				}
			}
		})
	}
}

// A job of FSDP some of whose steps have another sum is coded from its third step on, and each tensor keeps its key:
// all other collectives are the same in each step, which they would not be in one step of several equal layers.
func TestSumsInSomeSteps(t *testing.T) {
	require.OneGoroutine(t)
	const steps, ranks = 24, 2
	sum := func(s int) []gloosim.Call { return []gloosim.Call{gloosim.Ints("hits", s, 3100, tensor.Int64)} }
	// As torch.distributed.all_gather_object does, of objects of changing size.
	objects := func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gather("sizes of objects", s, 2, tensor.Float32), gloosim.Gather("objects", s, 60+s, tensor.Float32)}
	}
	both := func(s int) []gloosim.Call { return append(objects(s), sum(s)...) }
	// The same of larger objects.
	large := func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gather("sizes of objects", s, 2, tensor.Float32), gloosim.Gather("objects", s, 400+s, tensor.Float32)}
	}
	barrier := func(s int) []gloosim.Call {
		return []gloosim.Call{{Op: gloosim.Barrier, Name: "barrier", Step: s, Wait: true}}
	}
	metrics := func(s int) []gloosim.Call {
		return []gloosim.Call{gloosim.Ints("loss", s, 1, tensor.Float32), gloosim.Ints("right", s, 1, tensor.Int64), sum(s)[0]}
	}
	all := func(s int) []gloosim.Call { return slices.Concat(large(s), metrics(s), barrier(s)) }
	third := func(s int) bool { return s%3 == 2 }
	for name, x := range map[string]struct {
		mixed func(s int) bool
		with  func(s int) []gloosim.Call
	}{
		"every third":                     {func(s int) bool { return s%3 == 2 }, sum},
		"every second":                    {func(s int) bool { return s%2 == 1 }, sum},
		"every fourth":                    {func(s int) bool { return s%4 == 0 }, sum},
		"some":                            {func(s int) bool { return slices.Contains([]int{3, 5, 11, 12, 17}, s) }, sum},
		"every third, with objects":       {func(s int) bool { return s%3 == 2 }, both},
		"some, with objects":              {func(s int) bool { return slices.Contains([]int{3, 5, 11, 12, 17}, s) }, both},
		"objects after the sum":           {func(s int) bool { return s%3 == 1 }, func(s int) []gloosim.Call { return append(sum(s), objects(s)...) }},
		"every third, with large objects": {third, func(s int) []gloosim.Call { return append(large(s), sum(s)...) }},
		"every third, with a barrier":     {third, func(s int) []gloosim.Call { return append(barrier(s), sum(s)...) }},
		"every third, of three sums":      {third, metrics},
		"every third, all of it":          {third, all},
		"some, all of it":                 {func(s int) bool { return slices.Contains([]int{3, 5, 11, 12, 17}, s) }, all},
		"objects every third, no sum":     {func(s int) bool { return s%3 == 2 }, objects},
	} {
		t.Run(name, func(t *testing.T) {
			keys, found, of := keysOf(t, ranks, 2, repeatSteps(steps, func(s int) (c []gloosim.Call) {
				sizes := []int{6000, 18_000, 3000}
				for i, size := range sizes { // of the forward pass
					c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/ranks, tensor.Float32))
				}
				for i, size := range sizes {
					c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/ranks, tensor.Float32), gloosim.Gradients(fmt.Sprint("shard ", i), s, size, tensor.Float32))
				}
				if x.mixed(s) {
					c = append(c, x.with(s)...)
				}
				return c
			}))
			if found < of {
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

// The all-reduces of three equal layers and something after them are like those of three steps, where the last step has
// another sum. Each layer has a key of its own, where the weights of all are gathered at first, as by FSDP, and where
// each are gathered once they are new.
func TestEqualLayersHaveKeysOfTheirOwn(t *testing.T) {
	require.OneGoroutine(t)
	const steps, layers, ranks = 12, 3, 2
	sizes := []int{6000, 18_000, 3000}
	layer := func(s, layer int, gathers bool) (c []gloosim.Call) {
		for i, size := range sizes {
			c = append(c, gloosim.Gradients(fmt.Sprint("layer ", layer, ", shard ", i), s, size, tensor.Float32))
			if gathers {
				c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/ranks, tensor.Float32))
			}
		}
		return c
	}
	head := func(s int) gloosim.Call { return gloosim.Gradients("head", s, 6200, tensor.Float32) }
	for name, step := range map[string]func(s int) []gloosim.Call{
		"no gathers": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(c, layer(s, l, false)...)
			}
			return append(c, head(s))
		},
		"gathers at first, and again in the backward pass": func(s int) (c []gloosim.Call) {
			for range layers {
				for i, size := range sizes {
					c = append(c, gloosim.Gather(fmt.Sprint("weights ", i), s, size/ranks, tensor.Float32))
				}
			}
			for l := range layers {
				c = append(c, layer(s, l, true)...)
			}
			return append(c, head(s))
		},
		"gathers after each": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(c, layer(s, l, true)...)
			}
			return append(c, head(s), gloosim.Gather("weights of the head", s, 6200/ranks, tensor.Float32))
		},
		"of one shard, gathered after each": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(c, gloosim.Gradients(fmt.Sprint("layer ", l), s, sizes[1], tensor.Float32), gloosim.Gather("weights", s, sizes[1]/ranks, tensor.Float32))
			}
			return append(c, head(s))
		},
		"gathers after each, and something else after each layer": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(append(c, layer(s, l, true)...), gloosim.Gather("frozen weights", s, 5000, tensor.Float32))
			}
			return append(c, head(s))
		},
		"the same, and a short gather at the end": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(append(c, layer(s, l, true)...), gloosim.Gather("frozen weights", s, 5000, tensor.Float32))
			}
			return append(c, head(s), gloosim.Gather("objects", s, 60+s, tensor.Float32))
		},
		"gathers after each layer": func(s int) (c []gloosim.Call) {
			for l := range layers {
				c = append(c, layer(s, l, true)...)
			}
			return append(c, head(s))
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys, _, _ := keysOf(t, ranks, 4, repeatSteps(steps, step))
			users := map[uint64]string{}
			for name, all := range keys {
				for k := range all {
					if other, ok := users[k]; ok {
						t.Errorf("%s and %s have the same key", name, other)
					}
					users[k] = name
				}
			}
		})
	}
}

// The backward pass of FSDP sums the gradients of equal blocks one after another, and then the gradients of the rest
// of the model. It gathers the weights of the next block before it sums the gradients of one, so that nothing is
// gathered between the last two blocks' sums. If it keeps the weights of the forward pass, nothing is gathered between
// any two. Each block has a key of its own from the third step on.
func TestEqualBlocksHaveKeysOfTheirOwn(t *testing.T) {
	require.OneGoroutine(t)
	const steps, ranks, rest = 12, 2, 3000
	for _, block := range [][]int{{4000}, {4000, 2200}, {4000, 2200, 4000}} { // elements of its parts
		for _, blocks := range []int{1, 2, 3, 6, 12} {
			var parts []int
			for range blocks {
				parts = append(parts, block...)
			}
			for _, keeps := range []bool{false, true} {
				for _, rests := range []int{1, 2} { // equal parts of the rest of the model
					t.Run(fmt.Sprintf("%d blocks of %d parts, and %d more, kept=%t", blocks, len(block), rests, keeps), func(t *testing.T) {
						all := playSums(t, ranks, repeatSteps(steps, func(s int) (c []gloosim.Call) {
							gather := func(i int) gloosim.Call {
								return gloosim.Gather(fmt.Sprint("weights ", i), s, parts[i]/ranks, tensor.Float32)
							}
							c = append(c, gloosim.Gather("weights of the rest", s, rest/ranks, tensor.Float32))
							for i := range parts {
								c = append(c, gather(i))
							}
							last := len(parts) - 1
							if !keeps {
								c = append(c, gather(last))
							}
							for i := last; i >= 0; i-- {
								if !keeps && i > 0 {
									c = append(c, gather(i-1))
								}
								c = append(c, gloosim.Gradients(fmt.Sprint("part ", i), s, parts[i], tensor.Float32))
							}
							for i := range rests {
								c = append(c, gloosim.Gradients(fmt.Sprint("rest ", i), s, rest, tensor.Float32))
							}
							return c
						}))
						checkTruth(t, 0, slices.DeleteFunc(slices.Clone(all), func(m seen) bool { return m.Step < 2 }))
						keys, found, of := keysFrom(t, 3, all)
						users := map[uint64]string{}
						for name, all := range keys {
							if len(all) != 1 {
								t.Errorf("%s has %d keys", name, len(all))
							}
							for k := range all {
								if other, ok := users[k]; ok {
									t.Errorf("%s and %s have the same key", name, other)
								}
								users[k] = name
							}
						}
						if 10*found < 9*of {
							t.Errorf("%d of %d bytes of gradients found", found, of)
						}
					})
				}
			}
		}
	}
}

// keysOf plays a job, checks the roles of its messages, and returns the keys that each message of a gradient had from a
// step on, and how many bytes of gradients there were and were found.
func keysOf(t *testing.T, ranks, from int, calls []gloosim.Call) (keys map[string]map[uint64]bool, found, of int) {
	t.Helper()
	all := playSums(t, ranks, calls)
	checkTruth(t, 0, all)
	return keysFrom(t, from, all)
}

// playSums plays a job all of whose sums are gradients on the user's word.
func playSums(t *testing.T, ranks int, calls []gloosim.Call) []seen {
	t.Helper()
	all, err := play(t, gloosim.Run(gloosim.Job{Ranks: ranks, Calls: calls, Tags: true}), parser.Conn{Job: "job", Ranks: ranks, Sums: parser.SumsGradients})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// keysFrom returns the keys that each message of a gradient had from a step on, and how many bytes of gradients there
// were and were found.
func keysFrom(t *testing.T, from int, all []seen) (keys map[string]map[uint64]bool, found, of int) {
	t.Helper()
	keys = map[string]map[uint64]bool{}
	for _, m := range all {
		if m.Step < from || m.value.Role != tensor.Gradient {
			continue
		}
		name := fmt.Sprint(m.Name, " of rank ", m.Rank, ", connection ", m.conn, ", message ", m.Index)
		if keys[name] == nil {
			keys[name] = map[uint64]bool{}
		}
		keys[name][m.value.Key] = true
	}
	if len(keys) == 0 {
		t.Fatal("no gradients")
	}
	found, _, of = shareFound(all)
	return keys, found, of
}

// checkTruth compares the returned tensors with the truth.
func checkTruth(t *testing.T, seed uint64, all []seen) {
	t.Helper()
	type place struct {
		key  uint64
		step int
	}
	users := map[place]string{}
	for _, m := range all {
		if len(m.Bytes) == 0 {
			continue // of a barrier
		}
		where := fmt.Sprintf("seed %d: %s, step %d, rank %d, message %d, phase %d", seed, m.Name, m.Step, m.Rank, m.Index, m.Phase)
		if m.final == tensor.Gradient && (m.Role != tensor.Gradient || m.Phase != 1) {
			t.Fatalf("%s: %v is called a gradient", where, m.Role)
		}
		if m.value.DType != tensor.NoDType && m.value.DType != m.DType {
			t.Fatalf("%s: %v is called %v", where, m.DType, m.value.DType)
		}
		if (m.value.DType == tensor.NoDType || m.value.Role == tensor.Unknown) != (m.value.Why != tensor.OK) {
			t.Fatalf("%s: %v %v, and why: %v", where, m.value.Role, m.value.DType, m.value.Why)
		}
		if m.final != tensor.Gradient && m.final != tensor.Aggregate || m.Step == 0 {
			continue // in the first step equal layers can look like steps
		}
		name := fmt.Sprint(m.Name, " ", m.Index)
		for step := 1; step <= m.Step; step++ {
			if other, used := users[place{m.value.Key, step}]; used && other != name {
				t.Fatalf("%s: has the key of %s", where, other)
			}
		}
		if m.value.Key == 0 {
			t.Fatalf("%s: no key", where)
		}
		users[place{m.value.Key, m.Step}] = name
	}
}

// checkKeys checks that a tensor keeps its key from step to step.
func checkKeys(t *testing.T, seed uint64, all []seen) {
	t.Helper()
	type place struct {
		name              string
		conn, rank, index int
	}
	keys := map[place]seen{}
	changed := map[int]int{}
	for _, m := range all {
		if m.value.Role != tensor.Gradient || m.Step < 2 {
			continue
		}
		p := place{m.Name, m.conn, m.Rank, m.Index}
		if before, ok := keys[p]; ok && before.value.Key != m.value.Key {
			changed[m.Step]++
		}
		keys[p] = m
	}
	if len(changed) > 1 { // one change of the sequence changes all keys once
		t.Errorf("seed %d: keys changed in steps %v", seed, changed)
	}
}

// shareFound counts the bytes of phase 1 of gradients from the third step on (of) and how many of them the parser
// found, and all bytes that the content check trusted to be gradients.
func shareFound(all []seen) (found, trusted, of int) {
	for _, m := range all {
		if m.final == tensor.Gradient {
			trusted += len(m.Bytes)
		}
		if m.Role == tensor.Gradient && m.Phase == 1 && m.Step >= 2 {
			of += len(m.Bytes)
			if m.value.Role == tensor.Gradient {
				found += len(m.Bytes)
			}
		}
	}
	return found, trusted, of
}
