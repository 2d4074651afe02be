package lru

import "testing"

// A holder that keeps values without end has its own forgotten, and none of a holder with less than its share.
func TestMostGivesWay(t *testing.T) {
	const limit = 100
	var s Shared[string, int, int]
	for i := range 30 {
		s.Keep("few", i, -i, limit)
	}
	for i := range 10 * limit {
		s.Keep("flood", i, i, limit)
		if want := min(31+i, limit); s.Len() != want {
			t.Fatalf("%d values after %d of the flood, want %d", s.Len(), i+1, want)
		}
	}
	for i := range 30 {
		if v, ok := s.Use("few", i); !ok || v != -i {
			t.Errorf("value %d of the holder of few: %d, %v", i, v, ok)
		}
	}
	for i, want := range map[int]bool{10*limit - 1: true, 10*limit - 70: true, 10*limit - 71: false} {
		if _, ok := s.Use("flood", i); ok != want {
			t.Errorf("value %d of the flood is there: %v", i, ok)
		}
	}
	for i := range limit { // its share is a half
		s.Keep("few", i, -i, limit)
	}
	if few, flood := s.Of("few").Len(), s.Of("flood").Len(); few != limit/2 || flood != limit/2 {
		t.Errorf("%d and %d values, want halves", few, flood)
	}
	if _, ok := s.Use("nobody", 1); ok || s.Of("nobody") != nil {
		t.Error("a value of a holder without any")
	}
	s.Keep("few", 1, 1, 0)
	if s.Len() != 0 || s.Of("few") != nil || s.Of("flood") != nil {
		t.Errorf("%d values with no limit", s.Len())
	}
}

// Where values have a cost the holder of the largest costs gives way, however few its values are.
func TestCostliestGivesWay(t *testing.T) {
	s := Shared[string, int, int]{Cost: func(v int) int { return v }}
	for i := range 40 {
		s.Keep("many", i, 1, 100)
	}
	s.Keep("large", 0, 50, 100)
	s.Keep("large", 0, 30, 100) // instead of 50
	if s.Len() != 70 {
		t.Errorf("costs are %d, want 70", s.Len())
	}
	s.Keep("large", 1, 60, 100)
	if large, many := s.Of("large"), s.Of("many"); large.Len() != 1 || many.Len() != 40 || s.Len() != 100 {
		t.Errorf("%d and %d values, costs are %d, want 1, 40 and 100", large.Len(), many.Len(), s.Len())
	}
	s.Delete("large", 1)
	s.Delete("large", 7)
	if s.Delete("nobody", 7); s.Len() != 40 || s.Of("large") != nil {
		t.Errorf("costs are %d, want 40", s.Len())
	}
}
