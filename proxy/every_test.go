package proxy

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/tensor"
)

// Every codec can be named by a policy. A codec that loses nothing, or does not take floats, delivers the values that
// were sent; a codec that may lose something delivers all but the residual, from the second value on, unless it is
// right on average only.
func TestEveryCodecByPolicy(t *testing.T) {
	for _, name := range all.Names() {
		if name == "lossless" {
			continue // the name of these tests' own, which all others of this package use
		}
		t.Run(name, func(t *testing.T) {
			c, err := all.New(name)
			if err != nil {
				t.Fatal(err)
			}
			text := name
			if name == "threshold" {
				text = "threshold(t=1)" // its default is far below these values
			}
			p := newRealPair(t, text)
			l := &lossyRun{t: t, r: rand.New(rand.NewPCG(11, 12))}
			l.send(p, 30)
			for i, exact := range l.exact {
				if (i == 0 || !codecs.Lossy(c)) && !exact {
					t.Fatalf("value %d has changed", i)
				}
			}
			if !codecs.Lossy(c) {
				return
			}
			if !c.Traits().Unbiased {
				l.conservedBy(p.near, 0x1p-18)
			}
			if info := p.near.Tensors()[0]; info.Codec != text || info.Reason != tensor.OK.String() || info.WireBytes > info.RawBytes+1000 {
				t.Errorf("it travelled as %+v", info)
			}
		})
	}
}

// conservedBy checks that the sum of the values sent is the sum of the values received and the residual, but for a part
// of the largest of these: codecs that deliver values of another size, as codecs do that keep the mean only, make sums
// large.
func (l *lossyRun) conservedBy(p *Proxy, part float64) {
	l.t.Helper()
	residual := lossyResidual(l.t, p)
	largest := 1.0
	for i, left := range residual {
		largest = max(largest, math.Abs(l.received[i]), math.Abs(float64(left)))
	}
	for i, left := range residual {
		if d := l.sent[i] - l.received[i] - float64(left); !(math.Abs(d) <= part*largest) {
			l.t.Fatalf("element %d: sent %v, received %v and residual %v differ by %v", i, l.sent[i], l.received[i], left, d)
		}
	}
}
