//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes a recording of two ranks' sums as record_sums.py does: fresh values, and weights every fifth sum.
func write(t *testing.T, sums, elements int) string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	weights := make([]float32, elements)
	for i := range weights {
		weights[i] = float32(3 * rnd.NormFloat64())
	}
	return writeSums(t, sums, elements, func(k int, _ [2][]float32) (name string, ranks [2][]float32) {
		name = "gradient"
		if k%5 == 4 {
			name = "weights"
		}
		for rank := range ranks {
			ranks[rank] = make([]float32, elements)
			for i := range elements {
				x := float32(rnd.NormFloat64())
				if name == "weights" {
					x = weights[i] + 0.1*x
				}
				ranks[rank][i] = x
			}
		}
		return name, ranks
	})
}

// writeSums writes a recording of the sums that next returns, given the last one.
func writeSums(t *testing.T, sums, elements int, next func(k int, last [2][]float32) (string, [2][]float32)) string {
	t.Helper()
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2, %d), }", sums, elements)
	b := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)+1))...)
	b = append(b, header+"\n"...)
	var names []string
	var last [2][]float32
	for k := range sums {
		name, ranks := next(k, last)
		for _, v := range ranks {
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
		}
		names, last = append(names, name), ranks
	}
	file := filepath.Join(t.TempDir(), "job.npy")
	for name, data := range map[string]string{file: string(b), strings.TrimSuffix(file, "npy") + "txt": strings.Join(names, "\n")} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// Weights among gradients are found out, and gradients before that lose something.
func TestPlay(t *testing.T) {
	r, err := open(write(t, 40, 8003))
	if err != nil {
		t.Fatal(err)
	}
	res, err := play(r, "3lc", false)
	if err != nil {
		t.Fatal(err)
	}
	if res.others != 8 || res.gradients != 32 || res.firstGradient != 0 || res.first == 0 || res.share == 0 || !slices.Equal(res.row()[:2], []any{"job", "8 weights"}) {
		t.Errorf("%+v\n%s", res, res.row())
	}
}

// Weights that a job has broadcast at first are found out at once, before anything of them is lost.
func TestPlayWithFirstWeights(t *testing.T) {
	file := write(t, 40, 8003)
	r, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimSuffix(file, "npy")+"first", r.input(9, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err = open(file); err != nil {
		t.Fatal(err)
	}
	without, err := play(r, "3lc", false)
	if err != nil {
		t.Fatal(err)
	}
	with, err := play(r, "3lc", true)
	if err != nil {
		t.Fatal(err)
	}
	if with.firstGradient != 0 || with.othersLossy != 0 || with.first >= without.first {
		t.Errorf("%+v, and without the first weights %+v", with, without)
	}
}

// The maximum of gradients that all ranks have after their sum loses nothing: the ranks put in the result as it has
// arrived, with its losses.
func TestPlayMaximaOfResults(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const elements = 8003
	r, err := open(writeSums(t, 20, elements, func(k int, last [2][]float32) (string, [2][]float32) {
		total, other := make([]float32, elements), make([]float32, elements)
		for i := range total {
			if k == 12 {
				total[i] = last[0][i] + last[1][i]
			} else {
				total[i], other[i] = float32(rnd.NormFloat64()), float32(rnd.NormFloat64())
			}
		}
		if k == 12 {
			return "maximum", [2][]float32{total, total}
		}
		return "gradient", [2][]float32{total, other}
	}))
	if err != nil {
		t.Fatal(err)
	}
	res, err := play(r, "3lc", false)
	if err != nil {
		t.Fatal(err)
	}
	if res.others != 1 || res.othersLossy != 0 || res.first != 1 || res.firstGradient != 0 || res.share < 5 {
		t.Errorf("%+v", res)
	}
}

func TestOpenChecks(t *testing.T) {
	file := write(t, 10, 100)
	b, _ := os.ReadFile(file)
	for name, data := range map[string][]byte{"cut short": b[:len(b)-1], "no array": []byte("something else"), "empty": nil} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := open(file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Weights resemble the first ones, and gradients do not.
func TestLikeness(t *testing.T) {
	file := write(t, 40, 8003)
	r, err := open(file)
	if err != nil || r.first != nil {
		t.Fatal(err, r.first != nil)
	}
	weights := r.input(4, 0) // the first sum of weights
	if err := os.WriteFile(strings.TrimSuffix(file, "npy")+"first", weights, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err = open(file); err != nil {
		t.Fatal(err)
	}
	if l := likenessOf(r); l.gradients > 0.2 || l.first < 0.95 || l.smallest < 0.95 || l.other != "weights" {
		t.Errorf("%+v", l)
	}
	if err := os.WriteFile(strings.TrimSuffix(file, "npy")+"first", weights[1:], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(file); err == nil {
		t.Error("first weights of another number of elements are no error")
	}
}
