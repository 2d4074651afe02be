package paired

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A change of 3 % is found among measurements that vary by 10 %, and that another process doubles now and then; the
// bounds tell how well.
func TestCompare(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var pairs []Pair
	for i := range 200 {
		p := Pair{math.Exp(0.1 * rnd.NormFloat64()), 1.03 * math.Exp(0.1*rnd.NormFloat64())}
		if i%7 == 0 {
			p.With *= 2
		}
		if i%11 == 0 {
			p.Without *= 2
		}
		pairs = append(pairs, p)
	}
	c, err := Compare(pairs, Normal95)
	if err != nil {
		t.Fatal(err)
	}
	if c.Pairs != 200 || c.Low > 0.03 || c.High < 0.03 || c.High-c.Low < 0.01 || c.High-c.Low > 0.08 || math.Abs(c.Without-1) > 0.05 {
		t.Errorf("%+v", c)
	}
	wide, err := Compare(pairs, NormalSoon)
	if err != nil || wide.Low >= c.Low || wide.High <= c.High {
		t.Errorf("bounds of frequent looks: %+v, %v", wide, err)
	}
	if c, err := Compare(pairs[:3], Normal95); err == nil {
		t.Errorf("of three pairs: %+v", c)
	}
}
