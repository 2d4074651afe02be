package ddp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim/recorded"
)

// Gradients of each rank, ready in the same odd order: all ranks get their mean, in the first step, which is one
// bucket, and later.
func TestGradientsAreAveraged(t *testing.T) {
	for _, n := range []int{2, 3} {
		onRanks(t, n, func(g *gloosim.Group) error {
			params := model([]int{300, 400}, []int{400}, []int{700, 500}, []int{3}, []int{5})
			for i := range params {
				fill(params[i].Value, g.Rank(), i)
			}
			var calls Calls
			r, err := New(g, params, &calls)
			if err != nil {
				return err
			}
			for i, p := range params {
				want := slices.Clone(p.Value)
				fill(want, 0, i)
				if !slices.Equal(p.Value, want) {
					return fmt.Errorf("parameter %d is not rank 0's", i)
				}
			}
			for step := range 3 {
				if err := r.Forward(); err != nil {
					return err
				}
				for _, i := range []int{4, 3, 1, 2, 0} {
					fill(params[i].Grad, g.Rank(), step, i)
					r.Ready(i)
				}
				if err := r.Finish(); err != nil {
					return err
				}
				if want := []int{1, 2, 2}[step]; len(r.buckets) != want {
					return fmt.Errorf("step %d has %d buckets, want %d", step, len(r.buckets), want)
				}
				for i, b := range r.buckets {
					seen, _ := calls.Of(nil, g.NextTag()-uint32(len(r.buckets)-i))
					if len(seen) != 1 || seen[0].Caller != parser.DDPReducer || 4*seen[0].Elements != len(b.b) || seen[0].Buffer != b.id || seen[0].Ranks != n {
						return fmt.Errorf("step %d: bucket %d of %d bytes was called as %+v", step, i, len(b.b), seen)
					}
				}
				for i, p := range params {
					mean, one := make([]float64, len(p.Grad)), make([]float32, len(p.Grad))
					for rank := range n {
						fill(one, rank, step, i)
						for j, v := range one {
							mean[j] += float64(v) / float64(n)
						}
					}
					for j, v := range p.Grad {
						if d := float64(v) - mean[j]; d > 1e-6 || d < -1e-6 {
							return fmt.Errorf("step %d: gradient %d[%d] is %g, the mean is %g", step, i, j, v, mean[j])
						}
					}
				}
			}
			calls.Contradicted("the connection carries something else")
			if seen, _ := calls.Of(nil, g.NextTag()-1); len(seen) > 0 {
				return fmt.Errorf("calls %+v of a process that was contradicted", seen)
			}
			return nil
		})
	}
}

// Ranks with other models fail: rank 1 says why, and rank 0 at the latest when rank 1 has gone.
func TestModelsMustBeAlike(t *testing.T) {
	for name, other := range map[string][]train.Param{
		"0 has 2 parameters": model([]int{4, 6}),
		"other shapes":       model([]int{6, 4}, []int{4}),
	} {
		onRanks(t, 2, func(g *gloosim.Group) error {
			params := model([]int{4, 6}, []int{4})
			if g.Rank() == 1 {
				params = other
			}
			_, err := New(g, params, nil)
			if err == nil || g.Rank() == 1 && !strings.Contains(err.Error(), name) {
				return fmt.Errorf("%s: got %v", name, err)
			}
			g.Abort(err)
			return nil
		})
	}
}

// A job of PyTorch 2.15 with these parameters sent these numbers.
func TestShapesMessageIsPyTorchs(t *testing.T) {
	got := shapes(model([]int{200, 64}, []int{200}, []int{100, 200}, []int{100}, []int{10, 100}, []int{10}))
	want := []uint64{200, 64, 64, 1, 200, 1, 100, 200, 200, 1, 100, 1, 10, 100, 100, 1, 10, 1}
	for i, w := range want {
		if v := binary.LittleEndian.Uint64(got[8*i:]); v != w {
			t.Errorf("number %d is %d, want %d", i, v, w)
		}
	}
	if len(got) != 8*len(want) {
		t.Errorf("%d bytes, want %d", len(got), 8*len(want))
	}
}

// Recorded jobs: the broadcast of shapes, and the buckets that were announced after the first step, are as this package
// makes them of the same model.
func TestStartIsPyTorchs(t *testing.T) {
	for _, name := range []string{"gloo-ddp-2rank", "gloo-ddp-2rank-hs"} {
		job := recorded.Open(t, name)
		var params []train.Param
		for _, p := range job.Params {
			params = append(params, train.Param{Shape: p.Shape, Value: make([]float32, p.Bytes/float32Len)})
		}
		// Autograd's order in these jobs: from the last layer to the first, biases first; BatchNorm (5, 6) weight
		// first.
		r := &Replica{params: params}
		groups := cut(r.sizes([]int{10, 9, 8, 7, 5, 6, 4, 3, 2, 1, 0}), firstBucket, bucketLimit)
		indices, counts := layout(groups)
		sent := broadcasts(t, job.Connections[0].FromInitiator, job.Connections[0].FromAcceptor)
		for what, message := range map[string][]byte{"shapes": shapes(params), "indices": indices, "counts": counts} {
			if !slices.ContainsFunc(sent, func(b []byte) bool { return slices.Equal(b, message) }) {
				t.Errorf("%s: PyTorch has not broadcast %s %v", name, what, message)
			}
		}
	}
}

// broadcasts returns the payloads of all broadcasts in the streams of a connection.
func broadcasts(t *testing.T, streams ...[]byte) (payloads [][]byte) {
	const preamble, payload, broadcast = 48, 1, 6
	for _, s := range streams {
		for len(s) > 0 {
			op, kind, length := binary.LittleEndian.Uint64(s[8:]), s[23], int(binary.LittleEndian.Uint64(s[32:]))
			if s = s[preamble:]; op != payload {
				continue
			}
			if kind == broadcast {
				payloads = append(payloads, s[:length])
			}
			s = s[length:]
		}
	}
	if len(payloads) == 0 {
		t.Fatal("no broadcasts")
	}
	return payloads
}

// A group is full when it reaches its limit, and one parameter may be more than that.
func TestCutFillsGroupsUpToTheirLimits(t *testing.T) {
	params := []sized{{0, 6}, {1, 4}, {2, 1}, {3, 30}, {4, 19}, {5, 1}, {6, 2}}
	for want, limits := range map[string][]int{
		"[[0 1] [2 3] [4 5] [6]]":     {10, 20},
		"[[0 1 2 3] [4 5 6]]":         {40},
		"[[0] [1] [2] [3] [4 5] [6]]": {1, 1, 1, 20},
		"[[0 1 2 3 4 5 6]]":           {1000},
	} {
		if got := fmt.Sprint(cut(params, limits...)); got != want {
			t.Errorf("limits %v: %s, want %s", limits, got, want)
		}
	}
}

// The demo's model: a bucket of everything from the second layer on, which passes 1 MiB, and one of the first layer.
func TestBucketsOfTheDemosModel(t *testing.T) {
	params := train.New(1, 64, 1024, 512, 10).Params()
	r := &Replica{params: params}
	r.setBuckets(cut(r.sizes([]int{5, 4, 3, 2, 1, 0}), firstBucket, bucketLimit))
	var sizes []int
	for _, b := range r.buckets {
		sizes = append(sizes, len(b.b))
	}
	if want := []int{2119720, 266240}; !slices.Equal(sizes, want) {
		t.Errorf("buckets of %v bytes, want %v", sizes, want)
	}
}

func TestLayoutIsChecked(t *testing.T) {
	groups := [][]int{{2, 0}, {1}}
	indices, counts := layout(groups)
	back, err := parseLayout(indices, counts, 3)
	if err != nil || fmt.Sprint(back) != fmt.Sprint(groups) {
		t.Errorf("got %v, %v", back, err)
	}
	for name, bad := range map[string][2][]byte{
		"twice":    {change(indices, 0, 1), counts},
		"range":    {change(indices, 0, 3), counts},
		"too many": {indices, change(counts, 0, 3)},
		"too few":  {indices, change(counts, 0, 1)},
		"none":     {indices, change(counts, 0, 0)},
		"huge":     {indices, change(counts, 0, 255)},
	} {
		if got, err := parseLayout(bad[0], bad[1], 3); err == nil {
			t.Errorf("%s: no error, %v", name, got)
		}
	}
}

func change(b []byte, at int, to byte) []byte {
	b = slices.Clone(b)
	b[at] = to
	return b
}

func model(shapes ...[]int) (params []train.Param) {
	for i, shape := range shapes {
		n := 1
		for _, d := range shape {
			n *= d
		}
		params = append(params, train.Param{Name: fmt.Sprint(i), Shape: shape, Value: make([]float32, n), Grad: make([]float32, n)})
	}
	return params
}

// fill fills v with numbers that depend on seed alone.
func fill(v []float32, seed ...int) {
	var mixed uint64
	for _, s := range seed {
		mixed = mixed*1009 + uint64(s) + 1
	}
	rng := rand.New(rand.NewPCG(mixed, 0))
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
}

// onRanks runs f on n connected ranks at once and fails the test with their errors.
func onRanks(t *testing.T, n int, f func(g *gloosim.Group) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	listeners, addrs := make([]net.Listener, n), make([]netip.AddrPort, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i], addrs[i] = l, l.Addr().(*net.TCPAddr).AddrPort()
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			g, err := gloosim.Connect(ctx, gloosim.Config{
				Rank: rank, Addrs: addrs, Listeners: listeners[rank : rank+1],
				Dial: func(ctx context.Context, peer int) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", addrs[peer].String())
				},
			})
			if err != nil {
				errs[rank] = err
				return
			}
			defer g.Close()
			errs[rank] = f(g)
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
