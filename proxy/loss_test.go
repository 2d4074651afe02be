package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// halves is a lossy method for tests: it delivers the sign and 0.5 of every value.
type halves struct{}

func (halves) String() string                              { return "halves" }
func (halves) MaxEncodedLen(n int) int                     { return n }
func (halves) Block(size int) int                          { return size }
func (halves) Traits() codecs.Traits                       { return codecs.Traits{} }
func (halves) NewEncoder(int) (codecs.ValueEncoder, error) { return halves{}, nil }
func (halves) NewDecoder(int) (codecs.ValueDecoder, error) { return halves{}, nil }
func (halves) Append(dst []byte, src []float32) ([]byte, error) {
	for _, x := range src {
		dst = append(dst, byte(math.Float32bits(x)>>31))
	}
	return dst, nil
}

func (halves) Decode(dst []float32, src []byte) error {
	if len(src) != len(dst) {
		return codecs.ErrCorrupt
	}
	for i, b := range src {
		dst[i] = 0.5 - float32(b&1)
	}
	return nil
}

// gradients is the toy protocol whose tensors are gradients, and connect again if lasting.
type gradients struct {
	pathtest.Toy
	lasting bool
	learns  int // values before their role is known
}

func (g gradients) Traits() parser.Traits { return parser.Traits{Reconnects: g.lasting} }

func (g gradients) New(c parser.Conn) (a, b parser.Parser) {
	a, b = g.Toy.New(c)
	return &gradientParser{a, g.learns}, &gradientParser{b, g.learns}
}

type gradientParser struct {
	parser.Parser
	learns int
}

func (p *gradientParser) Next(b []byte) (parser.Segment, error) {
	seg, err := p.Parser.Next(b)
	if t := &seg.Tensor; t.Size > 0 {
		t.Role = tensor.Gradient
		if p.learns > 0 {
			t.Role, t.Why = tensor.Unknown, tensor.Learning
			if t.Off+seg.Len == t.Size {
				p.learns--
			}
		}
	}
	return seg, err
}

const lossyValues = 1000

// values returns one value of a tensor, and its message.
func values(r *rand.Rand) ([]float32, []byte) {
	v := make([]float32, lossyValues)
	var raw []byte
	for i := range v {
		v[i] = float32(r.NormFloat64())
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v[i]))
	}
	return v, pathtest.ToyPiece(3, 4*lossyValues, raw)
}

// A lossyRun has the sums of the values that were sent and delivered of one tensor.
type lossyRun struct {
	t              *testing.T
	r              *rand.Rand
	sent, received [lossyValues]float64
	exact          []bool // by value: it arrived as it was
}

// step sends one value and reads the one that arrives.
func (l *lossyRun) step(client io.Writer, server io.Reader, v []float32, msg []byte) {
	l.t.Helper()
	if _, err := client.Write(msg); err != nil {
		l.t.Fatal(err)
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(server, got); err != nil {
		l.t.Fatal(err)
	}
	l.exact = append(l.exact, bytes.Equal(got, msg))
	for i := range v {
		l.sent[i] += float64(v[i])
		l.received[i] += float64(math.Float32frombits(binary.LittleEndian.Uint32(got[8+4*i:])))
	}
}

// lossyResidual returns the residual of the tensor of a lossyRun, which must be the only one that p remembers.
func lossyResidual(t *testing.T, p *Proxy) []float32 {
	t.Helper()
	n, _, bytes := p.Residuals().Held()
	if n != 1 {
		t.Fatalf("%d tensors are remembered, want 1", n)
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	d := p.Residuals().Dense(residual.Owner(p.settings.Load().jobOf(loopback, loopback).Name, "far"), tensor.Tensor{Key: lossyKey, DType: tensor.Float32, Size: 4 * lossyValues}, false)
	if n, _, now := p.Residuals().Held(); d == nil || n != 1 || now != bytes {
		t.Fatal("another tensor is remembered")
	}
	d.Lock()
	defer d.Unlock()
	return slices.Clone(d.Part(0, 4*lossyValues))
}

// conserved checks that the sum of the values sent is the sum of the values received and the residual.
func (l *lossyRun) conserved(p *Proxy) {
	l.t.Helper()
	for i, left := range lossyResidual(l.t, p) {
		if d := l.sent[i] - l.received[i] - float64(left); math.Abs(d) > 1e-3 {
			l.t.Fatalf("element %d: sent %v, received %v and residual %v differ by %v", i, l.sent[i], l.received[i], left, d)
		}
	}
}

// earning is the number of values that travel exactly before one may lose something: the first, which has nothing to be
// compared with, and three that earn trust.
const earning = 4

// Loss begins once the tensor has earned trust, and it is made up for:
// over 200 values the sums differ by one residual, not by two hundred.
func TestLossIsMadeUp(t *testing.T) {
	p := newPair(t, []parser.Protocol{gradients{}}, policy.Rule{Codec: "halves"})
	client, server := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
	for range 200 {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
	if slices.Contains(l.exact[:earning], false) || slices.Contains(l.exact[earning:], true) {
		t.Errorf("exact values: %v, want the first %d and no other", l.exact[:10], earning)
	}
	l.conserved(p.near)
	client.CloseWrite()
	io.ReadAll(server)
	server.Close()
	io.ReadAll(client)
	p.near.Drain(t.Context())
	if n, _, _ := p.near.Residuals().Held(); n != 0 {
		t.Errorf("%d tensors are remembered of a connection that has ended and comes never again", n)
	}
}

// The first value that may lose something does, if the tensor has earned trust before it, while its role was not known
// yet. Values that came before travel exactly.
func TestLossBeginsOnceItIsKnown(t *testing.T) {
	for learns := range earning + 3 {
		p := newPair(t, []parser.Protocol{gradients{learns: learns}}, policy.Rule{Codec: "halves"})
		client, server := p.connect(t)
		l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
		for range earning + 4 {
			v, msg := values(l.r)
			l.step(client, server, v, msg)
		}
		for i, exact := range l.exact {
			if want := i < max(earning, learns); exact != want {
				t.Errorf("known after %d values: value %d arrives exactly: %v, want %v", learns, i, exact, want)
			}
		}
		l.conserved(p.near)
	}
}

// A tensor that turns into something else, as when averaged weights follow gradients, travels exactly from the first
// value on that looks it.
func TestWhatLooksLikeWeightsTravelsExactly(t *testing.T) {
	p := newPair(t, []parser.Protocol{gradients{}}, policy.Rule{Codec: "halves"})
	client, server := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
	weights, msg := values(l.r)
	l.step(client, server, weights, msg)
	for range 5 {
		for i := range weights { // a little training
			weights[i] += 0.01 * float32(l.r.NormFloat64())
			binary.LittleEndian.PutUint32(msg[8+4*i:], math.Float32bits(weights[i]))
		}
		l.step(client, server, weights, msg)
	}
	for i, exact := range l.exact {
		if !exact {
			t.Errorf("value %d of the weights was changed", i)
		}
	}
}

// lossyKey is the key of the tensor that values makes.
const lossyKey = 3 + 1

// block returns a random one of n float32.
func block(r *rand.Rand, n int) []byte {
	v, b := make([]float32, n), make([]byte, 4*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	tensor.FromFloat32(b, v, tensor.Float32)
	return b
}
