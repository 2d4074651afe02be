package proxy

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// flushing makes a pair's near proxy flush every so many values.
func (p *pair) flushing(t *testing.T, codec string, every int) {
	t.Helper()
	chosen, err := policy.New([]policy.Rule{{Codec: codec, FlushEvery: every}}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	all := netip.MustParsePrefix("127.0.0.0/8")
	settings := *p.near.settings.Load()
	settings.Policy = chosen
	settings.Jobs = []Job{{Name: "job", Networks: []netip.Prefix{all}, Sums: parser.SumsGradients, LossyAggregates: true}}
	p.near.Apply(settings)
}

// behind returns how far the received sums lag behind the sent ones, at most.
func (l *lossyRun) behind() (largest float64) {
	for i := range l.sent {
		largest = max(largest, math.Abs(l.sent[i]-l.received[i]))
	}
	return largest
}

// Every fifth value flushes the residual; in between there is one, and nothing is ever lost.
func TestFlushSendsTheResidual(t *testing.T) {
	for _, codec := range []string{"3lc(s=1.75)", "int4"} {
		p := newRealPair(t, codec)
		p.flushing(t, codec, 5)
		client, server := p.connect(t)
		l := &lossyRun{t: t, r: rand.New(rand.NewPCG(15, 16))}
		for value := 1; value <= 40; value++ {
			v, msg := values(l.r)
			l.step(client, server, v, msg)
			switch lag := l.behind(); {
			case value%5 == 0 && lag > 1e-5:
				t.Errorf("%s: after value %d receivers lag behind by %v", codec, value, lag)
			case value%5 == 1 && value > 1 && lag < 0.05:
				t.Errorf("%s: value %d lost nothing: the test shows nothing", codec, value)
			}
			l.conserved(p.near)
		}
	}
}

// A value that fails the content check travels as it is: the residual waits.
func TestNoFlushWithoutTheContentCheck(t *testing.T) {
	p := newRealPair(t, "int4")
	p.flushing(t, "int4", 4)
	client, server := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(17, 18))}
	for range 6 {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
	v, msg := values(l.r)
	for range 2 { // the eighth value is the seventh again
		l.step(client, server, v, msg)
	}
	if !l.exact[7] || l.behind() == 0 {
		t.Errorf("the eighth value was changed, or there was no residual: %v, %v", l.exact, l.behind())
	}
	l.conserved(p.near)
}

// Many blocks of large tensors, flushed at every other value while others of the same slots are under way.
func TestFlushKeepsOrder(t *testing.T) {
	const size = 3 << 20
	p := newRealPair(t, "int8")
	p.flushing(t, "int8", 2)
	client, server := p.connect(t)
	r := rand.New(rand.NewPCG(19, 20))
	sent, got := make([]float64, size/4), make([]float64, size/4)
	var all [][]byte
	for range 8 {
		b := block(r, size/4)
		all = append(all, b)
		add(sent, b)
	}
	go func() {
		for _, b := range all {
			client.Write(pathtest.ToyPiece(3, size, b))
		}
	}()
	msg := make([]byte, 8+size)
	for range all {
		if _, err := io.ReadFull(server, msg); err != nil {
			t.Fatal(err)
		}
		add(got, msg[8:])
	}
	for i := range sent {
		if math.Abs(sent[i]-got[i]) > 1e-5 {
			t.Fatalf("element %d: of %v, %v has come", i, sent[i], got[i])
		}
	}
}

func add(sums []float64, b []byte) {
	for i := range sums {
		sums[i] += float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
}

// aggregates is the toy protocol whose tensors are sums that replicas receive alike.
type aggregates struct{ gradients }

func (a aggregates) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	fromClient, fromServer = a.gradients.New(c)
	return aggregateParser{fromClient}, aggregateParser{fromServer}
}

type aggregateParser struct{ parser.Parser }

func (p aggregateParser) Next(b []byte) (parser.Segment, error) {
	seg, err := p.Parser.Next(b)
	if seg.Tensor.Size > 0 {
		seg.Tensor.Role = tensor.Aggregate
	}
	return seg, err
}

// A replica minimizes |w-goal|²/2, of which it sees noisy gradients, by SGD with momentum.
type replica struct{ w, velocity [lossyValues]float64 }

func (r *replica) step(sum []float32, momentum float64) {
	for i, g := range sum {
		r.velocity[i] = momentum*r.velocity[i] + float64(g)
		r.w[i] -= 0.02 * r.velocity[i]
	}
}

// distance is the norm of the difference of two replicas' weights over that of the weights.
func distance(a, b *replica) float64 {
	var d, n float64
	for i := range a.w {
		d += (a.w[i] - b.w[i]) * (a.w[i] - b.w[i])
		n += a.w[i] * a.w[i]
	}
	return math.Sqrt(d / n)
}

// The owner of a sum keeps it exactly, the other replica receives it through the proxies: a flush brings replicas of
// plain SGD together again, and replicas with momentum not.
func TestFlushHealsPlainSGDOnly(t *testing.T) {
	for _, x := range []struct {
		momentum        float64
		before, flushed [2]float64 // bounds of the distance after 39 and 40 steps
	}{
		{0, [2]float64{1e-3, 0.2}, [2]float64{0, 1e-6}},
		{0.9, [2]float64{1e-3, 0.2}, [2]float64{1e-3, 0.2}},
	} {
		p := newPairWith(t, withRealLoss, []parser.Protocol{aggregates{}})
		p.flushing(t, "int4", 10)
		client, server := p.connect(t)
		r := rand.New(rand.NewPCG(21, 22))
		var goal [lossyValues]float64
		for i := range goal {
			goal[i] = r.NormFloat64()
		}
		owner, other := &replica{}, &replica{}
		sum, msg := make([]float32, lossyValues), make([]byte, 8+4*lossyValues)
		for step := 1; step <= 40; step++ {
			for i := range sum { // each has computed its gradient at its own weights
				sum[i] = float32(owner.w[i] + other.w[i] - 2*goal[i] + 3*r.NormFloat64())
			}
			raw := make([]byte, 4*lossyValues)
			tensor.FromFloat32(raw, sum, tensor.Float32)
			client.Write(pathtest.ToyPiece(3, len(raw), raw))
			if _, err := io.ReadFull(server, msg); err != nil {
				t.Fatal(err)
			}
			owner.step(sum, x.momentum)
			tensor.ToFloat32(sum, msg[8:], tensor.Float32)
			other.step(sum, x.momentum)
			for at, want := range map[int][2]float64{39: x.before, 40: x.flushed} {
				if d := distance(owner, other); step == at && (d < want[0] || d > want[1]) {
					t.Errorf("momentum %v: after %d steps replicas are %v apart, want %v", x.momentum, step, d, want)
				}
			}
		}
	}
}
