package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A change of 3 % is found in steps that vary by 10 % and become slower all the time, and its margin tells how well.
func TestCompare(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const blocks, block = 120, 50
	var seconds []float64
	var stretches []stretch
	for i := range blocks {
		with := i%4 == 1 || i%4 == 2
		for range block {
			step := 0.01 * (1 + float64(len(seconds))/(blocks*block)) * math.Exp(0.1*rnd.NormFloat64())
			if with {
				step *= 1.03
			}
			seconds = append(seconds, step)
		}
		stretches = append(stretches, stretch{with, i*block + 3, (i+1)*block - 1})
	}
	c, err := compare(seconds, stretches)
	if err != nil {
		t.Fatal(err)
	}
	if c.pairs != blocks/2 || math.Abs(c.change-0.03) > 2*c.margin || c.margin < 0.002 || c.margin > 0.01 || c.without < 0.01 || c.without > 0.02 {
		t.Errorf("%+v", c)
	}
	if c, err := compare(seconds, stretches[:2]); err == nil {
		t.Errorf("of one pair: %+v", c)
	}
	short := stretches[:4:4]
	short[1].first = short[1].end - 2
	if c, err := compare(seconds, short); err == nil {
		t.Errorf("of a stretch that is too short: %+v", c)
	}
}
