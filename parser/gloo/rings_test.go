package gloo

import (
	"slices"
	"testing"
)

// messagesOf returns the lengths of a rank's messages of all-reduces of these sizes, in elements of 4 bytes.
func messagesOf(ranks, rank int, sizes ...int) (lengths []int) {
	for _, size := range sizes {
		if size == notRing {
			lengths = append(lengths, notRing)
			continue
		}
		l, _ := planOf(size, 4, ranks).sent(rank)
		lengths = append(lengths, l...)
	}
	return lengths
}

// phases writes the phases of cuts as digits.
func phases(cuts []cut) string {
	var b []byte
	for _, c := range cuts {
		b = append(b, byte('0'+c.phase))
	}
	return string(b)
}

func TestCutRings(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name        string
		lengths     []int
		low, high   int
		want        string // phases
		ok          bool
		rotate      int
		sizeOfFirst int
	}{
		{"two arrays and a loss", messagesOf(2, 0, 45056, 123904, 4), 2, 2, "112211220", true, 0, 45056},
		{"from the middle of an array on", messagesOf(2, 0, 45056, 123904, 4), 2, 2, "221122011", true, 2, 45056},
		{"equal arrays", messagesOf(2, 1, 40000, 40000, 40000, 4), 2, 2, "1122112211220", true, 0, 40000},
		{"three ranks", messagesOf(3, 1, 45056, 4), 3, 3, "111122220", true, 0, 45056},
		{"three ranks, not known", messagesOf(3, 1, 45056, 4), 3, maxRanks, "111122220", true, 0, 45056},
		{"two equal arrays of three ranks, or one of five", messagesOf(3, 1, 48000, 48000, 4), 3, 5, "11110000" + "00002222" + "0", true, 0, 0},
		{"between other collectives", messagesOf(2, 0, notRing, 45056, notRing), 2, 2, "011220", true, 0, 0},
		{"a large array whose last segment tells", messagesOf(2, 0, 5_000_000, 4), 2, 2, "111222" + "0", true, 0, 5_000_000},
		{"a large array of whole MiB", messagesOf(2, 0, 8*mib, 4), 2, 2, "11000022" + "0", true, 0, 0},
		{"half an array", messagesOf(2, 0, 45056, 4)[1:], 2, 2, "", false, 0, 0},
		{"an array of another number of ranks", messagesOf(3, 1, 45056, 4), 2, 2, "", false, 0, 0},
		{"no collective", []int{45056, 4}, 2, 2, "", false, 0, 0},
	} {
		lengths := append(slices.Clone(c.lengths[c.rotate:]), c.lengths[:c.rotate]...)
		cuts, ok := cutRings(lengths, c.low, c.high)
		if ok != c.ok || phases(cuts) != c.want {
			t.Errorf("%s: %s, %v; want %s, %v", c.name, phases(cuts), ok, c.want, c.ok)
		}
		if ok && c.sizeOfFirst > 0 && cuts[0].size != c.sizeOfFirst {
			t.Errorf("%s: the first array has %d bytes, want %d", c.name, cuts[0].size, c.sizeOfFirst)
		}
	}
}

// Thousands of equal messages end the search, and not the program.
func TestCutRingsIsBounded(t *testing.T) {
	lengths := make([]int, maxPeriod)
	for i := range lengths {
		lengths[i] = maxSegment
	}
	lengths[0] = 4
	cuts, ok := cutRings(lengths, 2, 4)
	if !ok || len(cuts) != len(lengths) {
		t.Fatalf("%d cuts, %v", len(cuts), ok)
	}
	for _, c := range cuts {
		if c.phase != 0 {
			t.Fatal("a phase, although not all ways were tried")
		}
	}
}
