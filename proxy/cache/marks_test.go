package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Bytes have the same marks wherever they stand, but for the first ones, and marks are as many as promised and as far
// apart.
func TestMarks(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	all := make([]byte, 1<<20)
	r.Read(all)
	whole := marksOf(all)
	if n := len(whole); n < 600 || n > 1200 {
		t.Errorf("%d marks of 2^20 bytes, want about 820", n)
	}
	at := map[int]uint64{}
	for i, m := range whole {
		if i > 0 && m.at < whole[i-1].at+markApart || m.hash != window(all[m.at-markWindow:]) {
			t.Fatalf("mark %d: %+v, behind %+v", i, m, whole[max(0, i-1)])
		}
		at[m.at] = m.hash
	}
	for _, from := range []int{1, 63, 1000, 4097, 16<<10 + 5} {
		for _, n := range []int{minSpan, 5000, 16<<10 + markWindow - 1, 16<<10 + markWindow, 300_001} {
			marks, common := marksOf(all[from:from+n]), 0
			for _, m := range marks {
				if at[m.at+from] == m.hash {
					common++
				}
			}
			if common < len(marks)*8/10-2 {
				t.Errorf("of %d bytes at %d %d marks of %d are as of the whole", n, from, common, len(marks))
			}
		}
	}
	if n := len(marksOf(all[:minSpan-1])); n != 0 {
		t.Errorf("%d marks of bytes that are not worth being named", n)
	}
	if n := len(marksOf(make([]byte, 1<<20))); n > 1<<20/markApart+1 {
		t.Errorf("%d marks of zeros", n)
	}
}

func BenchmarkMarks(b *testing.B) {
	for _, n := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := make([]byte, n)
			rand.NewChaCha8([32]byte{}).Read(x)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				marksOf(x)
			}
		})
	}
}
