package gloo

import "testing"

// stepOf returns a step of all-reduces of these sizes that has passed a number of rounds, with tags from 10 on.
func stepOf(rounds int, sizes ...uint64) *step {
	c := &step{last: -1}
	for _, n := range sizes {
		c.reduces = append(c.reduces, expectedReduce{elements: n})
	}
	for r := range rounds {
		for q, n := range sizes {
			c.place(uint32(10*(r+1)+q), sized(n))
		}
	}
	return c
}

func sized(n uint64) func(*expectedReduce) bool {
	return func(it *expectedReduce) bool { return it.elements == n }
}

func TestStepPlaces(t *testing.T) {
	type arrival struct {
		tag  uint32
		size uint64
		want int // place, -1: none
		sure bool
	}
	for name, c := range map[string]struct {
		step     *step
		arrivals []arrival
	}{
		"in order":             {stepOf(1, 5, 7, 9), []arrival{{20, 5, 0, true}, {21, 7, 1, true}, {22, 9, 2, true}, {30, 5, 0, true}}},
		"overtaken":            {stepOf(1, 5, 7, 9), []arrival{{21, 7, 1, true}, {20, 5, 0, true}, {22, 9, 2, true}}},
		"twice overtaken":      {stepOf(1, 5, 7, 9), []arrival{{22, 9, 2, true}, {20, 5, 0, true}, {21, 7, 1, true}}},
		"something else":       {stepOf(1, 5, 7, 9), []arrival{{20, 5, 0, true}, {21, 4, -1, false}, {22, 7, 1, true}}},
		"alike, in order":      {stepOf(2, 5, 5, 5), []arrival{{30, 5, 0, true}, {31, 5, 1, true}, {32, 5, 2, true}}},
		"alike, overtaken":     {stepOf(2, 5, 5, 5), []arrival{{31, 5, 1, true}, {30, 5, 0, true}, {32, 5, 2, true}}},
		"alike, not known yet": {stepOf(0, 5, 5, 5), []arrival{{11, 5, 0, false}, {10, 5, 1, false}, {12, 5, 2, false}}},
		"alike, all passed":    {stepOf(0, 5, 5, 5), []arrival{{11, 5, 0, false}, {12, 5, 1, false}, {10, 5, 2, false}}},
		"far too late":         {stepOf(1, 5, 7, 9), []arrival{{20, 5, 0, true}, {21, 7, 1, true}, {19, 9, -1, false}}},
	} {
		for i, s := range c.arrivals {
			q, ok, sure := c.step.find(s.tag, sized(s.size))
			if !ok {
				q = -1
			}
			if q != s.want || sure != s.sure {
				t.Errorf("%s, arrival %d: place %d, sure %v; want %d, %v", name, i, q, sure, s.want, s.sure)
			}
		}
	}
}

// Where all-reduces of equal lengths have overtaken each other unnoticed, their tags are put right, so that the next
// round is sure.
func TestStepLearnsTheOrderOfOvertaken(t *testing.T) {
	c := stepOf(0, 5, 5, 5)
	for _, tag := range []uint32{11, 12, 10, 20, 21, 22} {
		c.find(tag, sized(5))
	}
	for i, s := range []struct {
		tag  uint32
		want int
	}{{31, 1}, {30, 0}, {32, 2}} {
		if q, _, sure := c.find(s.tag, sized(5)); q != s.want || !sure {
			t.Errorf("arrival %d: place %d, sure %v; want %d", i, q, sure, s.want)
		}
	}
}

// A rounded step does not begin again while its last all-reduce is expected.
func TestRoundedStep(t *testing.T) {
	c := stepOf(1, 5, 7)
	c.rounded = true
	c.find(20, sized(5))
	if q, ok, _ := c.find(21, sized(5)); ok {
		t.Errorf("place %d of the next round comes before the last of this round", q)
	}
}
