package cursor

import "testing"

func TestReadsInOrderAndStopsAtTheEnd(t *testing.T) {
	c := New([]byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9})
	if x := c.Uint32(); x != 1 {
		t.Errorf("Uint32 = %d, want 1", x)
	}
	if x := c.Uint64(); x != 2 {
		t.Errorf("Uint64 = %d, want 2", x)
	}
	if !c.OK() || c.Len() != 1 {
		t.Fatalf("OK %v, Len %d after 12 of 13 bytes", c.OK(), c.Len())
	}
	if x := c.Uint32(); x != 0 || c.OK() || c.Len() != 0 {
		t.Errorf("a read past the end: %d, OK %v, Len %d; want 0, false, 0", x, c.OK(), c.Len())
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
