package tensors

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A full table shows new tensors and tensors in use, and drops the one that was used least recently.
func TestTableKeepsWhatIsInUse(t *testing.T) {
	var table Table
	use := func(key uint64) *Record {
		x := tensor.Tensor{Key: key, DType: tensor.Float32, Size: 4}
		r, _ := table.Of(Origin{}, policy.Flow{}, x)
		r.Chose(nil, x, policy.Verbatim, 0)
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
	row := func(key uint64) *Record {
		r, _ := table.Of(Origin{}, policy.Flow{}, tensor.Tensor{Key: key, Size: 4})
		return r
	}
	first := row(1)
	for key := uint64(2); key <= maxTensors; key++ {
		row(key)
	}
	if row(1) != first {
		t.Error("a tensor has a new record though the table was not too small")
	}
}

// A told is a policy that notes the results that it is told.
type told struct {
	policy.Policy
	flow   policy.Flow
	tensor tensor.Tensor
	codec  string
	raw    int
}

func (p *told) Saw(f policy.Flow, t tensor.Tensor, h *policy.History, codec string, raw, wire int, took time.Duration) {
	p.flow, p.tensor, p.codec, p.raw = f, t, codec, p.raw+raw
	h.Saw(codec, raw, wire, took)
}

// The policy that chose for a value is told its results, with the tensor as it was asked of it.
func TestPolicySeesResults(t *testing.T) {
	var table Table
	f := policy.Flow{Job: "job", Protocol: "toy"}
	x := tensor.Tensor{Key: 7, DType: tensor.Float32, Size: 4000, Role: tensor.State}
	r, _ := table.Of(Origin{}, f, x)
	var first, second told
	r.Chose(&first, x, "int8", tensor.OK)
	r.Saw("int8", 4000, 1000, time.Millisecond)
	r.Chose(&second, x, "lossless", tensor.OK)
	r.Saw("lossless", 4000, 2000, 2*time.Millisecond)
	if first.flow != f || first.tensor.Key != 7 || first.codec != "int8" || first.raw != 4000 || second.codec != "lossless" || second.raw != 4000 {
		t.Errorf("told %+v and %+v", first, second)
	}
	if r.Takes("int8", 4000) != time.Millisecond || r.Takes("lossless", 4000) != 2*time.Millisecond {
		t.Errorf("a value takes %v and %v", r.Takes("int8", 4000), r.Takes("lossless", 4000))
	}
}

// The table has the proof of a role and its source, and the reason for an unknown one.
func TestEvidence(t *testing.T) {
	var table Table
	for i, c := range []struct {
		x           tensor.Tensor
		want, proof string
	}{
		{tensor.Tensor{Role: tensor.Gradient}, "ok", "the user's word"},
		{tensor.Tensor{Role: tensor.Aggregate}, "ok", "the user's word"},
		{tensor.Tensor{Role: tensor.Gradient, Proof: tensor.ByWire}, "ok", "the app's messages"},
		{tensor.Tensor{Role: tensor.Gradient, Proof: tensor.ByUpdate}, "ok", "the servers' update"},
		{tensor.Tensor{Role: tensor.Gradient, Proof: tensor.ByCall}, "called by DDP", "the process's call"},
		{tensor.Tensor{Role: tensor.Exact, Proof: tensor.ByWire, Why: tensor.DTypeUnknown}, "dtype unknown", "the app's messages"},
		{tensor.Tensor{Role: tensor.Exact}, "ok", ""},
		{tensor.Tensor{Role: tensor.State}, "ok", ""},
		{tensor.Tensor{Proof: tensor.ByCall, Why: tensor.DTypeUnknown}, "dtype unknown", ""},
		{tensor.Tensor{Why: tensor.OtherCaller}, "other caller", ""},
	} {
		c.x.Key, c.x.Size = uint64(i)+1, 4096
		record, _ := table.Of(Origin{}, policy.Flow{}, c.x)
		record.Chose(nil, c.x, policy.Verbatim, tensor.OK)
		for _, info := range table.List() {
			if info.Key == c.x.Key && (info.Evidence != c.want || info.Proof != c.proof) {
				t.Errorf("the evidence for %+v is %q by %q, want %q by %q", c.x, info.Evidence, info.Proof, c.want, c.proof)
			}
		}
	}
}

// A table takes the memory that it is given, within its bounds, and has no more lines.
func TestLinesFitTheirMemory(t *testing.T) {
	for bytes, want := range map[int64]int{0: minTensors, 1 << 20: minTensors, 9000 * lineBytes: 9000, 1 << 40: maxTensors} {
		lines, takes := Beside(share * bytes)
		if lines != want || takes != int64(lines)*lineBytes {
			t.Errorf("%d bytes: %d lines of %d bytes, want %d", bytes, lines, takes, want)
		}
	}
	table := Table{Max: 3}
	for key := range uint64(10) {
		table.Of(Origin{}, policy.Flow{}, tensor.Tensor{Key: key + 1, Size: 4})
	}
	if n := len(table.List()); n != 3 {
		t.Errorf("a table of 3 lines has %d", n)
	}
}
