package wansim

import (
	"bytes"
	"testing"
)

// The ring keeps its bytes through growth and wrapping.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 0, 1})
	f.Add([]byte{100, 50, 200, 255, 1, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var r ring
		var model []byte
		next := byte(0)
		for i, s := range steps {
			n := int(s) * 37
			if i%2 == 0 {
				p := make([]byte, n)
				for j := range p {
					p[j] = next
					next++
				}
				r.write(p)
				model = append(model, p...)
			} else {
				p := make([]byte, min(n, r.n))
				r.read(p)
				if !bytes.Equal(p, model[:len(p)]) {
					t.Fatalf("step %d: read %v, want %v", i, p, model[:len(p)])
				}
				model = model[len(p):]
			}
			if r.n != len(model) {
				t.Fatalf("step %d: %d bytes, want %d", i, r.n, len(model))
			}
		}
	})
}
