package cursor

import "testing"

func TestReadsInOrderAndStopsAtTheEnd(t *testing.T) {
	c := New([]byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9})
	if b := c.Bytes(4); len(b) != 4 || b[0] != 1 {
		t.Errorf("Bytes(4) = %v, want 1, 0, 0, 0", b)
	}
	if x := c.Uint64(); x != 2 {
		t.Errorf("Uint64 = %d, want 2", x)
	}
	if !c.OK() {
		t.Fatal("12 of 13 bytes cannot be read")
	}
	if x := c.Uint64(); x != 0 || c.OK() {
		t.Errorf("a read past the end: %d, OK %v; want 0, false", x, c.OK())
	}
	if b := c.Bytes(0); c.OK() || len(b) != 0 {
		t.Error("a failed Cursor recovered")
	}
}

func TestRefusesNegativeLengths(t *testing.T) {
	c := New(make([]byte, 8))
	if b := c.Bytes(-1); b != nil || c.OK() {
		t.Errorf("Bytes(-1) = %v, OK %v", b, c.OK())
	}
}

// A slice that a Cursor has returned cannot grow into bytes that it has not returned.
func TestReturnsOnlyItsBytes(t *testing.T) {
	c := New([]byte{1, 2, 3, 4})
	if b := append(c.Bytes(2), 9); b[2] != 9 || c.Bytes(1)[0] != 3 {
		t.Error("an append to a returned slice changed the next bytes")
	}
}
