package tensors

import (
	"testing"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A full table shows new tensors and those in use, and drops the one that was used least recently.
func TestTableKeepsWhatIsInUse(t *testing.T) {
	var table Table
	use := func(key uint64) *Record {
		r := table.Of(policy.Flow{}, tensor.Tensor{Key: key, DType: tensor.Float32, Size: 4})
		r.Chose(4, policy.Verbatim, 0, 0)
		return r
	}
	const inUse = 1 // a tensor of each step; the others come once
	for key := uint64(1); key <= maxTensors+100; key++ {
		use(key)
		use(inUse)
	}
	rows := table.List()
	listed := map[uint64]int64{}
	for _, r := range rows {
		listed[r.Key] = r.Values
	}
	if len(rows) != maxTensors {
		t.Errorf("%d lines, want as many as there may be, %d", len(rows), maxTensors)
	}
	if got := listed[inUse]; got != maxTensors+101 {
		t.Errorf("the tensor in use has %d values, want %d", got, maxTensors+101)
	}
	for key, want := range map[uint64]bool{maxTensors + 100: true, 102: true, 101: false, 2: false} {
		if _, got := listed[key]; got != want {
			t.Errorf("tensor %d listed: %v, want %v", key, got, want)
		}
	}
	if use(101) == nil || len(table.List()) != maxTensors {
		t.Error("a tensor that comes again is not listed again")
	}
}

// The record of a tensor is not lost while the table is full of others.
func TestTableHasOneRecordATensor(t *testing.T) {
	var table Table
	row := func(key uint64) *Record { return table.Of(policy.Flow{}, tensor.Tensor{Key: key, Size: 4}) }
	first := row(1)
	for key := uint64(2); key <= maxTensors; key++ {
		row(key)
	}
	if row(1) != first {
		t.Error("a tensor has a new record though the table was not too small")
	}
}
