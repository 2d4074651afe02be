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
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2, %d), }", sums, elements)
	b := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)+1))...)
	b = append(b, header+"\n"...)
	weights := make([]float64, elements)
	for i := range weights {
		weights[i] = 3 * rnd.NormFloat64()
	}
	var names []string
	for k := range sums {
		name := "gradient"
		if k%5 == 4 {
			name = "weights"
		}
		names = append(names, name)
		for range 2 {
			for i := range elements {
				x := rnd.NormFloat64()
				if name == "weights" {
					x = weights[i] + 0.1*x
				}
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
			}
		}
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
