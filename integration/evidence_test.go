//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// wantExact adds up the inputs that two ranks kept in folder (testdata/record.py). It fails the test unless every
// collective gave each rank exactly that sum, and there were as many of each operation as want says; 0: some.
func wantExact(t *testing.T, folder string, want map[string]int) {
	t.Helper()
	for operation, n := range want {
		got, wrong := 0, 0
		for k := 0; ; k++ {
			if _, err := os.Stat(filepath.Join(folder, kept(k, operation, 0, "in"))); err != nil {
				if more, _ := filepath.Glob(filepath.Join(folder, fmt.Sprintf("%d.*", k))); len(more) == 0 {
					break
				}
				continue
			}
			got++
			read := func(rank int, end string) []byte {
				b, err := os.ReadFile(filepath.Join(folder, kept(k, operation, rank, end)))
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			expect := gathered(read(0, "in"), read(1, "in"))
			if operation == "sum" {
				expect = added(t, read(0, "in"), read(1, "in"))
			}
			for rank := range 2 {
				if out := read(rank, "out"); !bytes.Equal(out, expect) {
					wrong++
					t.Errorf("collective %d, a %s: rank %d got out %s", k, operation, rank, difference(out, expect))
				}
			}
		}
		if got != n && n > 0 || got == 0 {
			t.Errorf("the ranks kept %d of operation %s, want %d", got, operation, n)
		}
		t.Logf("%d of operation %s: %d wrong results", got, operation, wrong)
	}
}

// kept names a file of testdata/record.py.
func kept(k int, operation string, rank int, end string) string {
	return fmt.Sprintf("%d.%s.%d.%s", k, operation, rank, end)
}

func gathered(a, b []byte) []byte { return append(bytes.Clone(a), b...) }

// added returns a+b, of float32. The order in which a ring adds two numbers makes no difference.
func added(t *testing.T, a, b []byte) []byte {
	t.Helper()
	if len(a) != len(b) || len(a)%4 != 0 {
		t.Fatalf("the ranks put in %d and %d bytes of float32", len(a), len(b))
	}
	x, y := make([]float32, len(a)/4), make([]float32, len(b)/4)
	tensor.ToFloat32(x, a, tensor.Float32)
	tensor.ToFloat32(y, b, tensor.Float32)
	for i := range x {
		x[i] += y[i]
	}
	sum := make([]byte, len(a))
	tensor.FromFloat32(sum, x, tensor.Float32)
	return sum
}

// difference says how much of got, which is not want, is wrong.
func difference(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
	}
	first := 0
	for got[first] == want[first] {
		first++
	}
	return fmt.Sprintf("%d wrong bytes of %d, the first at %d", differing(got, want), len(got), first)
}

// differing counts the bytes in which a and b differ.
func differing(a, b []byte) (n int) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n + max(len(a), len(b)) - min(len(a), len(b))
}
