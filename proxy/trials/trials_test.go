package trials

import (
	"math/rand/v2"
	"slices"
	"testing"

	codeclist "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

func newTrials(t *testing.T) *Trials {
	trials := New(Config{Codecs: codeclist.New, Memory: 64 << 20, Share: 1})
	t.Cleanup(trials.Close)
	return trials
}

// nothing is a proxy that has sent nothing.
func nothing() ([]Sent, []tensors.Info) { return nil, nil }

// Candidates are replaced as a whole, and stay if one of the next is no codec; without candidates there is no report.
func TestTry(t *testing.T) {
	trials := newTrials(t)
	sent, list := nothing()
	report := func() (Report, bool) {
		return trials.Report(func() []Sent { return sent }, func() []tensors.Info { return list })
	}
	if _, ok := report(); ok {
		t.Error("a report without candidates")
	}
	for _, c := range []struct {
		next, want []string
		ok         bool
	}{
		{[]string{"int8", "int4"}, []string{"int8", "int4"}, true},
		{[]string{"int8", "nonsense"}, []string{"int8", "int4"}, false},
		{[]string{"3lc"}, []string{"3lc"}, true},
	} {
		if err := trials.Try(c.next); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.next, err)
		}
		if r, _ := report(); !slices.Equal(r.Codecs, c.want) {
			t.Errorf("after %v: %v is tried", c.next, r.Codecs)
		}
	}
	sent = []Sent{{"tokyo", "resnet", tensor.Gradient, 1000, 900}, {"tokyo", "resnet", tensor.Unknown, 700, 700}}
	list = []tensors.Info{{Peer: "tokyo", Job: "resnet", Role: "gradient", Protocol: "gloo", DType: "float32", RawBytes: 1500, WireBytes: 1400, Sampleable: true}}
	r, _ := report()
	if len(r.Groups) != 2 || r.Groups[0].Raw != 1500 || r.Groups[0].Wire != 1400 || r.Groups[1].Raw != 200 || len(r.Groups[0].Candidates) != 0 {
		t.Errorf("500 bytes of gradients travelled verbatim, and nothing was sampled: %+v", r.Groups)
	}
	trials.Try(nil)
	if _, ok := report(); ok {
		t.Error("a report after the end of all trials")
	}
}

// A trial codes the values of a line as a proxy would: the first exactly, since the content check knows none before it,
// and later ones by the candidate, whose error is measured. A tensor that is no gradient loses nothing.
func TestTrialLine(t *testing.T) {
	x, err := newTrial(codeclist.New, "int8", 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	line := x.Line(policy.Flow{Protocol: "toy"}, "tokyo", nil)
	defer line.Close()
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 4096)
	raw := make([]byte, 4*len(values))
	measured := 0
	for i := range 20 {
		for k := range values {
			values[k] = float32(r.NormFloat64())
		}
		tensor.FromFloat32(raw, values, tensor.Float32)
		g := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: len(raw)}
		m, err := line.Send(g, raw, []shadow.Run{{Len: len(raw) / 2, Hold: len(raw)}, {Len: len(raw) / 2, Hold: len(raw) / 2}})
		if err != nil {
			t.Fatal(err)
		}
		if m.Raw != int64(len(raw)) || i == 0 && !m.Exact || i == 19 && (m.Exact || m.Wire > m.Raw/3 || m.Coding == 0) {
			t.Errorf("value %d: %+v", i, m)
		}
		measured += m.Measured
	}
	if measured == 0 {
		t.Error("no error of 20 values was measured")
	}
	exact := tensor.Tensor{Key: 2, Role: tensor.Exact, DType: tensor.Float32, Size: len(raw)}
	if m, err := line.Send(exact, raw, []shadow.Run{{Len: len(raw), Hold: len(raw)}}); err != nil || !m.Exact || m.Measured != 0 || m.Wire < m.Raw/2 {
		t.Errorf("an exact tensor: %+v, %v", m, err)
	}
}

// A tensor that has its turn again goes on with its residual and last value, piece by piece: its first value there is
// coded by the candidate.
func TestTurnsGoOn(t *testing.T) {
	x, err := newTrial(codeclist.New, "int8", 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 4096)
	raw := make([]byte, 4*len(values))
	for turn := range 3 {
		line := x.Line(policy.Flow{Protocol: "toy"}, "tokyo", nil)
		for i := range 20 {
			for k := range values {
				values[k] = float32(r.NormFloat64())
			}
			tensor.FromFloat32(raw, values, tensor.Float32)
			g := tensor.Tensor{Key: 1, Role: tensor.Gradient, DType: tensor.Float32, Size: len(raw)}
			m, err := line.Send(g, raw, []shadow.Run{{Len: len(raw), Hold: len(raw)}})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && m.Exact != (turn == 0) {
				t.Errorf("turn %d: the first value: %+v", turn, m)
			}
		}
		line.Close()
	}
}
