package qsgd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/internal/bitio"
)

// The codes of Elias' paper's table, and of others by the recursion.
func TestOmega(t *testing.T) {
	for k, want := range map[uint]string{1: "0", 2: "100", 3: "110", 4: "101000", 7: "101110", 8: "1110000", 15: "1111110", 16: "10100100000", 100: "1011011001000", 127: "1011011111110"} {
		code, n := omega(k)
		if got := fmt.Sprintf("%0*b", n, code); got != want {
			t.Errorf("%d is %s, want %s", k, got, want)
		}
	}
	var w bitio.Writer
	var numbers []uint
	for k := uint(1); k < 1<<25; k += 1 + k/3 {
		code, n := omega(k)
		w.Write(code, n)
		numbers = append(numbers, k)
	}
	b := w.Bytes()
	r := bitio.NewReader(b)
	for _, k := range numbers {
		if got := readOmega(&r, k); got != k {
			t.Fatalf("%d is read as %d", k, got)
		}
	}
	for _, k := range numbers[1:] {
		code, n := omega(k)
		var w bitio.Writer
		w.Write(code, n)
		r := bitio.NewReader(w.Bytes())
		if got := readOmega(&r, k-1); got != 0 {
			t.Errorf("%d is read as %d, where at most %d is allowed", k, got, k-1)
		}
	}
}

// No levels are longer than eliasLen says, and they come back.
func TestEliasLen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range []int{1, 7, 127} {
		for n := 1; n < 200; n++ {
			for _, zeros := range []int{0, 1, 2, 3, 5, 9, 17, 33, 100} { // of so many levels one is not 0
				levels := make([]int8, n)
				for i := range levels {
					if (i+1)%(zeros+1) == 0 {
						levels[i] = int8(s * (1 - 2*r.IntN(2)))
					}
				}
				b := appendElias([]byte{7}, levels)[1:]
				if len(b) > eliasLen(n, s) {
					t.Fatalf("%v takes %d bytes, eliasLen says %d", levels, len(b), eliasLen(n, s))
				}
				back := make([]int8, n)
				if rest, err := readElias(back, append(b, 9), s); err != nil || len(rest) != 1 || !slices.Equal(back, levels) {
					t.Fatalf("%v comes back as %v, %v", levels, back, err)
				}
			}
		}
	}
}
