package tensor

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Masked bytes are the ones that RFC 6455 (5.3) gives, from any offset on and in any pieces, and masking twice changes
// nothing.
func TestMask(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	m := Mask{0x37, 0xfa, 0x21, 0x3d}
	if b := []byte("Hello"); true {
		if m.Apply(b); !bytes.Equal(b, []byte{0x7f, 0x9f, 0x4d, 0x51, 0x58}) {
			t.Errorf("the RFC's Hello is masked as %x", b)
		}
	}
	for _, n := range []int{0, 1, 7, 511, 512, 513, 5000} {
		src, want := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(rnd.Uint32())
			want[i] = src[i] ^ m[i%4]
		}
		got := make([]byte, n)
		for at := 0; at < n; {
			k := min(1+rnd.IntN(900), n-at)
			m.From(at).Copy(got[at:at+k], src[at:at+k])
			at += k
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes are masked wrongly", n)
		}
		if m.Apply(got); !bytes.Equal(got, src) {
			t.Errorf("%d bytes are not what they were", n)
		}
	}
	if m.From(-3) != m.From(1) || m.From(4) != m || m.From(2).From(-2) != m {
		t.Error("masks at offsets are wrong")
	}
}
