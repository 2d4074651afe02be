package gloo

import "testing"

// courseOf returns a course of items with these sizes, seen once with tags from 10 on.
func courseOf(rounds int, sizes ...uint64) *course {
	c := &course{last: -1}
	for _, n := range sizes {
		c.items = append(c.items, item{elements: n})
	}
	for r := range rounds {
		for q, n := range sizes {
			c.place(uint32(10*(r+1)+q), sized(n))
		}
	}
	return c
}

func sized(n uint64) func(*item) bool { return func(it *item) bool { return it.elements == n } }

func TestCoursePlaces(t *testing.T) {
	type step struct {
		tag  uint32
		size uint64
		want int // item, -1: none
		sure bool
	}
	for name, c := range map[string]struct {
		course *course
		steps  []step
	}{
		"in order":             {courseOf(1, 5, 7, 9), []step{{20, 5, 0, true}, {21, 7, 1, true}, {22, 9, 2, true}, {30, 5, 0, true}}},
		"overtaken":            {courseOf(1, 5, 7, 9), []step{{21, 7, 1, true}, {20, 5, 0, true}, {22, 9, 2, true}}},
		"twice overtaken":      {courseOf(1, 5, 7, 9), []step{{22, 9, 2, true}, {20, 5, 0, true}, {21, 7, 1, true}}},
		"something else":       {courseOf(1, 5, 7, 9), []step{{20, 5, 0, true}, {21, 4, -1, false}, {22, 7, 1, true}}},
		"alike, in order":      {courseOf(2, 5, 5, 5), []step{{30, 5, 0, true}, {31, 5, 1, true}, {32, 5, 2, true}}},
		"alike, overtaken":     {courseOf(2, 5, 5, 5), []step{{31, 5, 1, true}, {30, 5, 0, true}, {32, 5, 2, true}}},
		"alike, not known yet": {courseOf(0, 5, 5, 5), []step{{11, 5, 0, false}, {10, 5, 1, false}, {12, 5, 2, false}}},
		"alike, all passed":    {courseOf(0, 5, 5, 5), []step{{11, 5, 0, false}, {12, 5, 1, false}, {10, 5, 2, false}}},
		"far too late":         {courseOf(1, 5, 7, 9), []step{{20, 5, 0, true}, {21, 7, 1, true}, {19, 9, -1, false}}},
	} {
		for i, s := range c.steps {
			q, ok, sure := c.course.find(s.tag, sized(s.size))
			if !ok {
				q = -1
			}
			if q != s.want || sure != s.sure {
				t.Errorf("%s, step %d: item %d, sure %v; want %d, %v", name, i, q, sure, s.want, s.sure)
			}
		}
	}
}

// Where alike collectives have passed each other unnoticed, their tags are put right, so that the next round is sure.
func TestCourseLearnsTheOrderOfThoseThatPassed(t *testing.T) {
	c := courseOf(0, 5, 5, 5)
	for _, tag := range []uint32{11, 12, 10, 20, 21, 22} {
		c.find(tag, sized(5))
	}
	for i, s := range []struct {
		tag  uint32
		want int
	}{{31, 1}, {30, 0}, {32, 2}} {
		if q, _, sure := c.find(s.tag, sized(5)); q != s.want || !sure {
			t.Errorf("step %d: item %d, sure %v; want %d", i, q, sure, s.want)
		}
	}
}

// A rounded course does not begin anew while its last item is expected.
func TestRoundedCourse(t *testing.T) {
	c := courseOf(1, 5, 7)
	c.rounded = true
	c.find(20, sized(5))
	if q, ok, _ := c.find(21, sized(5)); ok {
		t.Errorf("an item of the next round, %d, before the last of this", q)
	}
}
