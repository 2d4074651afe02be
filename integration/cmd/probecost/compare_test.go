//go:build linux

package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/gradproxy/gradproxy/integration/require/paired"
)

// played returns stretches of steps that vary by 10 %, become slower all the time, and take twice the time in every
// seventh stretch; with probes they take longer by a share.
func played(blocks int, by float64) (stretches []stretch) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const block = 50
	for i := range blocks {
		s := stretch{with: i%4 == 1 || i%4 == 2}
		var seconds []float64
		for k := range block {
			step := 0.01 * (1 + float64(i*block+k)/float64(blocks*block)) * math.Exp(0.1*rnd.NormFloat64())
			if i%7 == 0 { // another process has the machine
				step *= 2
			}
			if s.with {
				step *= 1 + by
			}
			seconds = append(seconds, step)
			s.processor += step / block
		}
		s.seconds = paired.Quantile(seconds, 1, 4)
		s.calls = s.seconds / 50
		stretches = append(stretches, s)
	}
	return stretches
}

// A change of 3 % is found, and its bounds tell how well.
func TestCompare(t *testing.T) {
	of := func(s *stretch) float64 { return s.seconds }
	stretches := played(120, 0.03)
	c, err := compare(stretches, paired.Normal95, of)
	if err != nil {
		t.Fatal(err)
	}
	if c.Pairs != 60 || c.Low > 0.03 || c.High < 0.03 || c.High-c.Low < 0.004 || c.High-c.Low > 0.04 || c.Without < 0.01 || c.Without > 0.02 {
		t.Errorf("%+v", c)
	}
	if c, err := compare(stretches[:3], paired.Normal95, of); err == nil {
		t.Errorf("of one pair: %+v", c)
	}
}

// A change is judged by its bounds, and only at the end by narrow ones.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		by     float64
		blocks int
		last   bool
		want   verdict
	}{
		{0, 1200, false, yes}, {0.002, 1200, false, yes}, {0.05, 1200, false, no}, {0.01, 1200, false, open}, {0.01, 1200, true, unknown}, {0, 60, false, open}, {0.5, 240, false, no},
	} {
		var r result
		if err := r.judge(played(c.blocks, c.by), c.last); err != nil || r.verdict != c.want {
			t.Errorf("%+v: verdict %q, step time %v, %v", c, r.verdict, r.time, err)
		}
	}
}

// The time that probes add to calls is told as a share of the step.
func TestShare(t *testing.T) {
	r := result{time: comparison{paired.Change{Without: 0.01}}, calls: comparison{paired.Change{Without: 0.0002, Median: 0.04, Low: 0.03, High: 0.05}}}
	if got, want := r.share(), "+0.080 % (bounds: +0.060 to +0.100 %)"; got != want {
		t.Errorf("share %q, want %q", got, want)
	}
}

// The newest calls are told, sorted, and an error says so if some of them are no longer kept.
func TestTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times")
	all, err := newTimes(path)
	if err != nil {
		t.Fatal(err)
	}
	b := binary.NativeEndian.AppendUint64(nil, 5)
	for _, ns := range []uint32{1, 2, 9, 8, 7} {
		b = binary.NativeEndian.AppendUint32(b, ns*1000)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all.since(2); err != nil || !slices.Equal(got, []float64{7e-6, 8e-6, 9e-6}) {
		t.Errorf("times %v, %v", got, err)
	}
	if err := os.WriteFile(path, binary.NativeEndian.AppendUint64(nil, keptCalls), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(unsafe.Sizeof(times{}))); err != nil {
		t.Fatal(err)
	}
	if got, err := all.since(2); err == nil {
		t.Errorf("of too many calls %d are told", len(got))
	}
}
