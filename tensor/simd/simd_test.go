package simd

import "testing"

func TestLimit(t *testing.T) {
	if Use() != Best() {
		t.Fatalf("%v is used, and %v is the best", Use(), Best())
	}
	restore := Limit(Plain)
	if Use() != Plain {
		t.Errorf("%v is used in spite of the limit", Use())
	}
	inner := Limit(VBMI)
	if Use() != Best() {
		t.Errorf("a limit above the best gives %v", Use())
	}
	inner()
	if Use() != Plain {
		t.Errorf("after an inner limit %v is used", Use())
	}
	restore()
	if Use() != Best() {
		t.Errorf("without limit %v is used", Use())
	}
}
