package proxy

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// realLoss knows the real lossy codecs, and the test's others.
func realLoss(text string) (codecs.Codec, error) {
	if c, err := all.New(text); err == nil && text != "lossless" {
		return c, nil
	}
	return testCodecs(text)
}

// withRealLoss has a proxy know the codecs of realLoss.
func withRealLoss(_ string, c *Config) { c.Codecs = realLoss }

// newRealPair returns a pair that chooses a real codec for a tensor that outlives its connections.
func newRealPair(t *testing.T, codec string) *pair {
	p := newPairWith(t, withRealLoss, []parser.Protocol{gradients{lasting: true}})
	p.choose(t, codec)
	return p
}

// choose reloads the near proxy with another codec.
func (p *pair) choose(t *testing.T, codec string) {
	t.Helper()
	chosen, err := policy.New([]policy.Rule{{Codec: codec}}, realLoss)
	if err != nil {
		t.Fatal(err)
	}
	settings := *p.near.settings.Load()
	settings.Policy = chosen
	p.near.Apply(settings)
}

// send sends that many values over a connection of their own.
func (l *lossyRun) send(p *pair, count int) {
	l.t.Helper()
	client, server := p.connect(l.t)
	defer client.Close()
	defer server.Close()
	for range count {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
}

// residual returns the norm of the residual.
func (l *lossyRun) residual(p *Proxy) (norm float64) {
	l.t.Helper()
	for _, x := range lossyResidual(l.t, p) {
		norm += float64(x) * float64(x)
	}
	return math.Sqrt(norm)
}

// The values sent are the values received and the residual: over two connections, a reload with another codec, a save,
// and two proxies in the place of the first, with another codec again.
func TestResidualsOutliveCodecsConnectionsAndProxies(t *testing.T) {
	p := newRealPair(t, "3lc(s=1.75)")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(5, 6))}
	l.send(p, 20)
	l.conserved(p.near)
	coarse := l.residual(p.near)
	p.choose(t, "int8")
	l.send(p, 1)
	if l.exact[20] || l.residual(p.near) >= coarse/20 { // the first by the new codec already makes up for the old one's residual
		t.Errorf("after a change of codec the residual is %v, before it %v", l.residual(p.near), coarse)
	}
	p.choose(t, "int4(block=32)")
	l.send(p, 5)
	p.choose(t, "3lc")
	l.send(p, 5)
	l.conserved(p.near)

	var file bytes.Buffer
	if err := p.near.Residuals().Save(&file); err != nil {
		t.Fatal(err)
	}
	before := l.residual(p.near)
	q := newRealPair(t, "int4")
	if err := q.near.Residuals().Load(&file); err != nil {
		t.Fatal(err)
	}
	if got := l.residual(q.near); got != before || before == 0 {
		t.Fatalf("the residual is %v after loading, want %v", got, before)
	}
	l.conserved(q.near)
	n := len(l.exact)
	l.send(q, 20)
	if slices.Contains(l.exact[n:n+earning], false) || slices.Contains(l.exact[n+earning:], true) {
		t.Errorf("exact values after loading: %v, want the first %d and no other", l.exact[n:], earning)
	}
	l.conserved(q.near)

	q.choose(t, "lossless") // the residual waits while the tensor travels exactly
	before = l.residual(q.near)
	l.send(q, 3)
	if got := l.residual(q.near); got != before {
		t.Errorf("the residual is %v after exact values, %v before", got, before)
	}
	l.conserved(q.near)
}

// Without the file the same run does lose: the test above can fail.
func TestWithoutSavingIsLost(t *testing.T) {
	p := newRealPair(t, "3lc(s=1.75)")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(5, 6))}
	l.send(p, 20)
	q := newRealPair(t, "3lc(s=1.75)")
	l.send(q, 20)
	for i, x := range lossyResidual(t, q.near) {
		if math.Abs(l.sent[i]-l.received[i]-float64(x)) > 0.1 {
			return
		}
	}
	t.Error("a proxy was replaced, nothing was saved, and nothing is missing")
}

// A tensor that does not outlive its connection is not saved.
func TestOnlyLastingTensorsAreSaved(t *testing.T) {
	p := newPair(t, []parser.Protocol{gradients{}}, policy.Rule{Codec: "halves"})
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(7, 8))}
	client, server := p.connect(t)
	for range 5 {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
	var file bytes.Buffer
	if err := p.near.Residuals().Save(&file); err != nil || file.Len() != len("gpresid1")+5 {
		t.Errorf("%d bytes were saved, %v", file.Len(), err)
	}
	if n := p.near.Residuals().Changes(); n != 0 {
		t.Errorf("%d changes are counted", n)
	}
}

// Changes are counted as long as there are any, and not by looking.
func TestResidualChanges(t *testing.T) {
	p := newRealPair(t, "int8")
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(9, 10))}
	l.send(p, earning+1) // the last is the first that loses something
	before := p.near.Residuals().Changes()
	var file bytes.Buffer
	if err := p.near.Residuals().Save(&file); err != nil || before == 0 {
		t.Fatalf("%d changes, %v", before, err)
	}
	if n := p.near.Residuals().Changes(); n != before {
		t.Errorf("a save counts as %d changes", n-before)
	}
	l.send(p, 1)
	if p.near.Residuals().Changes() == before {
		t.Error("another value counts as no change")
	}
}
