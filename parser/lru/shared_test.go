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
	if s.Len() != 0 {
		t.Errorf("%d values with no limit", s.Len())
	}
}
