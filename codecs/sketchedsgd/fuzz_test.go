package sketchedsgd

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/internal/magnitude"
	"github.com/gradproxy/gradproxy/tensor"
)

// FuzzDecode: any bytes are at most k finite values or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x02\x01\x03\xa0\x00\x00\x80\x3f\x00\x00\x00\x40"), uint16(20), byte(0))
	f.Add([]byte{0}, uint16(0), byte(0))
	check := func(t *testing.T, _ codecs.Codec, y []float32) { checkSent(t, 0.1, y) }
	codectest.FuzzDecode(f, check, mustNew(f, Config{K: 0.1}))
}

// FuzzRoundTrip: delivered values are the block's own, at most k of them, and blocks that are too large or not finite
// are unsuited.
func FuzzRoundTrip(f *testing.F) {
	for i, k := range codectest.Kinds() {
		f.Add(k.Fill(tensor.Float32, 70, 1), uint8(10*i), uint8(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, share, columns, form uint8) {
		c := Config{
			K: (float64(share) + 1) / 256, P: 1 + int(form>>4), Rows: 1 + 2*int(form>>1&7)%countsketch.MaxRows,
			Cols: (float64(columns) + 1) / 256, Cells: countsketch.Cells(form & 1),
		}
		x, y := codectest.RoundTrip(t, mustNew(t, c), src)
		suited := !slices.ContainsFunc(x, func(v float32) bool { return !(math.Abs(float64(v)) <= float64(Limit(len(x)))) })
		if suited != (y != nil) {
			t.Fatalf("suited: %v, but not so for Append: %v", suited, x)
		}
		if y == nil {
			return
		}
		for i, v := range y {
			if v != 0 && v != x[i] {
				t.Fatalf("value %d, %v, is delivered as %v", i, x[i], v)
			}
		}
		checkSent(t, c.K, y)
	})
}

// checkSent fails t if more than a share of values are not 0.
func checkSent(t *testing.T, share float64, y []float32) {
	t.Helper()
	sent := 0
	for _, v := range y {
		if v != 0 {
			sent++
		}
	}
	if len(y) > 0 && sent > part(share, len(y)) {
		t.Fatalf("%d of %d values are sent", sent, len(y))
	}
}

// FuzzLargest compares the radix selection with sorting.
func FuzzLargest(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\xbf\x01\x00\x00\x00\x00\x00\x00\x80"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, m uint8) {
		x := make([]float32, len(b)/4)
		order := make([]uint64, len(x))
		for i := range x {
			x[i], order[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])), uint64(i)
		}
		order = slices.DeleteFunc(order, func(i uint64) bool { return x[i] == 0 })
		slices.SortStableFunc(order, func(i, j uint64) int { return int(magnitude.Of(x[j])) - int(magnitude.Of(x[i])) })
		want := order[:min(int(m), len(order))]
		slices.Sort(want)
		if got := Largest(nil, x, int(m)); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v of %v", got, want, x)
		}
	})
}
