package residual

import "testing"

// A doubt holds for all connections of a job, and for no other, until the last of them has left.
func TestDoubtLastsUntilAllHaveLeft(t *testing.T) {
	s := New(1<<20, Events{})
	a, b, other, alone := s.Join("job"), s.Join("job"), s.Join("other"), s.Join("")
	if a.Doubted() || !a.Doubt() || b.Doubt() {
		t.Error("not the first of two doubts is the first")
	}
	if !b.Doubted() || other.Doubted() || alone.Doubted() {
		t.Errorf("doubted: %v, another job %v, a connection without a job %v", b.Doubted(), other.Doubted(), alone.Doubted())
	}
	alone.Doubt()
	if next := s.Join(""); next == alone || next.Doubted() {
		t.Error("connections without a job share a doubt")
	}
	s.Leave(a)
	c := s.Join("job")
	if !c.Doubted() {
		t.Error("the doubt is gone while a connection is there")
	}
	s.Leave(b)
	s.Leave(c)
	if s.Join("job").Doubted() {
		t.Error("a job that has connected anew is doubted")
	}
}
