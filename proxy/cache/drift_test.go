package cache

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// Weights that a codec follows stay lossy. Once they run away from it all blocks of the job travel exactly from the
// next value on, the job is counted once, and loss comes back after a while.
func TestDriftingJobGoesBackToExact(t *testing.T) {
	a, b := newSides(t, 64<<20)
	codec, err := all.New("int4")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 2000
	values := [2][]float32{make([]float32, n), make([]float32, n)}
	for k := range values {
		for i := range values[k] {
			values[k][i] = float32(r.NormFloat64())
		}
	}
	// step moves the weights of both blocks, and reports which arrive as they are.
	step := func(by float64) (exact [2]bool) {
		for k := range values {
			data := make([]byte, 4*n)
			for i := range values[k] {
				values[k][i] += float32(by * r.NormFloat64())
				binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(values[k][i]))
			}
			key := uint64(k) + 1
			tt := tensor.Tensor{Key: key, Base: key, DType: tensor.Float32, Size: len(data), Role: tensor.State}
			observe, _ := a.tensors.Of(tensors.Origin{}, policy.Flow{}, tt)
			ref, _, ok := a.peer.Put(a.tag, Put{Decl: frame.Declaration{Codec: "int4", DType: tensor.Float32, N: n, Job: "job", Key: key, Base: key}, Data: data,
				Choice: policy.Choice{Codec: codec, Closed: true}, Role: tensor.State, Observe: observe})
			if !ok {
				t.Fatal("no room")
			}
			got, err := b.take(ref)
			if err != nil {
				t.Fatal(err)
			}
			exact[k] = bytes.Equal(got, data)
		}
		return exact
	}
	drifts := func() int {
		a.metrics.mu.Lock()
		defer a.metrics.mu.Unlock()
		return a.metrics.drifts
	}
	for i := range 200 {
		if got := step(0.01); i > 0 && got != [2]bool{} || drifts() != 0 {
			t.Fatalf("step %d: exact %v, %d drifts", i, got, drifts())
		}
	}
	step(3) // the first value that drifts tells it
	if got := step(3); got != [2]bool{true, true} {
		t.Fatalf("the job does not go back to exact: %v", got)
	}
	if drifts() != 1 {
		t.Errorf("%d drifts are counted, want 1", drifts())
	}
	exact := 1
	for step(0.01) == [2]bool{true, true} {
		if exact++; exact > 2*driftValues {
			t.Fatal("loss does not come back")
		}
	}
	if exact < driftValues-1 || drifts() != 1 {
		t.Errorf("%d values travelled exactly, want %d; %d drifts", exact, driftValues, drifts())
	}
}

// Errors of a training that begins, that has no values yet, or whose weights are zero, are no drift.
func TestGauge(t *testing.T) {
	var g gauge
	for i := range 1000 {
		e := 0.001
		switch {
		case i < driftAfter-1:
			e = 0.9
		case i%10 == 0:
			e = math.Inf(1)
		case i > 500:
			e = 0.04 // four times as large, and small
		}
		if i == driftAfter-1 {
			g = gauge{}
		}
		if g.judges(e) {
			t.Fatalf("value %d: an error of %v is a drift", i, e)
		}
	}
	if !g.judges(0.9) {
		t.Error("an error of 0.9 is no drift")
	}
}
