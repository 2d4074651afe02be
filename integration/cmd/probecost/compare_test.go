package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A change of 3 % is found in steps that vary by 10 %, become slower all the time, and take twice the time in every seventh stretch; its bounds tell how well.
func TestCompare(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const blocks, block = 120, 50
	var seconds []float64
	var stretches []stretch
	for i := range blocks {
		with := i%4 == 1 || i%4 == 2
		for range block {
			step := 0.01 * (1 + float64(len(seconds))/(blocks*block)) * math.Exp(0.1*rnd.NormFloat64())
			if i%7 == 0 { // another process has the machine
				step *= 2
			}
			if with {
				step *= 1.03
			}
			seconds = append(seconds, step)
		}
		stretches = append(stretches, stretch{with: with, first: i*block + 3, end: (i+1)*block - 1})
	}
	of := func(s *stretch) float64 { return s.seconds(seconds) }
	c, err := compare(stretches, of)
	if err != nil {
		t.Fatal(err)
	}
	if c.pairs != blocks/2 || c.low > 0.03 || c.high < 0.03 || c.high-c.low < 0.004 || c.high-c.low > 0.04 || c.without < 0.01 || c.without > 0.02 {
		t.Errorf("%+v", c)
	}
	if c, err := compare(stretches[:2], of); err == nil {
		t.Errorf("of one pair: %+v", c)
	}
	short := stretches[:4:4]
	short[1].first = short[1].end - 2
	if c, err := compare(short, of); err == nil {
		t.Errorf("of a stretch that is too short: %+v", c)
	}
}
