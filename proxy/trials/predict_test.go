package trials

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
	codeclist "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/estimate"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/tensor"
)

// record trains a perceptron for a while and returns the gradients of the next batches, all at the same weights, by
// step and tensor.
func record(t *testing.T, steps, hidden int) (all [][][]byte) {
	t.Helper()
	const batch, before, rate = 16, 30, 0.1
	m := train.New(3, digits.Pixels, hidden, digits.Classes)
	set, _ := digits.Load()
	batches := train.Batches{Images: set.Len(), Size: batch, Ranks: 1, Seed: 1}
	for step := range before + steps {
		var images []float32
		var labels []uint8
		for _, i := range batches.Next() {
			images, labels = append(images, set.Image(i)...), append(labels, set.Labels[i])
		}
		m.Step(images, labels, nil)
		var grads [][]byte
		for _, p := range m.Params() {
			for i, g := range p.Grad {
				if step < before {
					p.Value[i] -= rate * g
				}
			}
			raw := make([]byte, 4*len(p.Grad))
			tensor.FromFloat32(raw, p.Grad, tensor.Float32)
			if len(raw) >= policy.MinBytes {
				grads = append(grads, raw)
			}
		}
		if step >= before {
			all = append(all, grads)
		}
	}
	return all
}

// A recorded sequence of gradients makes as many bytes on the path of a proxy as trials predict, within 5 %, and saves
// as many. Where tensors take turns, each of which begins with a residual of zero, the bytes under a codec whose
// residual takes hundreds of values to settle are predicted within 10 % only. Where the guard acts the trial says so,
// and no number: on the path it acts for longer and longer.
func TestTrialsPredictThePath(t *testing.T) {
	if require.Race {
		t.Skip("needs a build without the race detector, under which it takes half a minute")
	}
	const enough, turns = 16 << 20, 2 << 20 // bytes: of all tensors, and less than the two largest need together
	recorded := record(t, 450, 1100)
	for _, c := range []struct {
		codec   string
		memory  int64
		within  float64
		guarded bool
	}{
		{"int4", enough, 0.05, false}, {"int4", turns, 0.05, false},
		{"3lc(s=1.5)", enough, 0.05, false}, {"3lc(s=1.5)", turns, 0.1, false},
		{"3lc(s=1.75)", enough, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			sent, results := codeBoth(t, c.codec, recorded, c.memory)
			var predicted, raw float64
			behind, fewest := 0, math.MaxFloat64
			for k, b := range recorded[0] {
				x := results.Of(shadow.Name{Job: recordedFlow.Job, Protocol: recordedFlow.Protocol, Direction: recordedFlow.Direction.String(), Key: uint64(k + 1), Role: tensor.Gradient, Size: len(b)})
				if len(x) != 1 || x[0].Raw == 0 || (x[0].Early > 0 || x[0].Near > 0) && !c.guarded {
					t.Fatalf("%s: tensor %d: %+v", c.codec, k, x)
				}
				behind += x[0].Behind
				fewest = min(fewest, float64(x[0].Raw)/float64(len(b)))
				predicted, raw = predicted+float64(len(b))*float64(x[0].Wire)/float64(x[0].Raw), raw+float64(len(b))
			}
			if all := float64(len(recorded)) / 2; (fewest < all) != (c.memory == turns) {
				t.Errorf("%s with %d bytes: %.0f values of a tensor were tried, of %d", c.codec, c.memory, fewest, len(recorded))
			}
			d, off := predicted/raw/sent-1, (1-predicted/raw)/(1-sent)-1
			t.Logf("%s with %d bytes: %.5f of the bytes predicted, %.5f sent: %+.1f %%, of the savings %+.2f %%; the guard acted on %d blocks of the trial", c.codec, c.memory, predicted/raw, sent, 100*d, 100*off, behind)
			if c.guarded != (behind > 0) || !c.guarded && (math.Abs(d) > c.within || math.Abs(off) > 0.05) {
				t.Errorf("%s: the prediction is %+.1f %% off, of the savings %+.1f %%; the guard acted on %d blocks", c.codec, 100*d, 100*off, behind)
			}
		})
	}
}

// A trial that has all values plays the guard as the path does. But how often the guard acts, where the residual is
// near its limit, depends on the first value: a sample cannot tell it. So the trial says that the limit is near.
func TestTrialsPlayTheGuard(t *testing.T) {
	const text, starts = "3lc(s=1.75)", 8
	recorded := record(t, 450+starts, 500)
	chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.Gradient}, Codec: text}}, codeclist.New)
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for begin := range starts {
		path, err := estimate.New(estimate.Config{Codecs: codeclist.New, Policy: chosen})
		if err != nil {
			t.Fatal(err)
		}
		trial, err := newTrial(codeclist.New, text, 16<<20)
		if err != nil {
			t.Fatal(err)
		}
		flow, line := path.Flow(recordedFlow), trial.Line(recordedFlow, "tokyo", nil)
		exact, played := 0, 0
		for _, grads := range recorded[begin : begin+450] {
			for k, raw := range grads {
				g := tensor.Tensor{Key: uint64(k + 1), Role: tensor.Gradient, Proof: tensor.ByCall, DType: tensor.Float32, Size: len(raw), Hold: len(raw)}
				if err := flow.Send(raw, []parser.Segment{{Len: len(raw), Tensor: g}}); err != nil {
					t.Fatal(err)
				}
				m, err := line.Send(g, raw, []shadow.Run{{Len: len(raw), Hold: len(raw)}})
				if err != nil {
					t.Fatal(err)
				}
				exact, played = exact+path.Quality(tensor.Gradient).Behind, played+m.Behind
			}
		}
		if played != exact {
			t.Errorf("from value %d on the guard sends %d blocks exactly, and in the trial %d", begin, exact, played)
		}
		all = append(all, exact)
		line.Close()
		trial.Close()
		path.Close()
	}
	t.Logf("blocks of %d that the guard sends exactly, by the first value: %v", 450*len(recorded[0]), all)
	if slices.Min(all) == slices.Max(all) {
		t.Error("the first value does not matter: then trials can predict the guard's part")
	}
	if require.Race {
		return // the rest takes long
	}
	synctest.Test(t, func(t *testing.T) {
		_, results := codeBoth(t, text, recorded, 2<<20)
		x := results.OfGroup("tokyo", recordedFlow.Job, tensor.Gradient)
		t.Logf("%+v", x)
		if len(x) != 1 || x[0].Raw == 0 || x[0].Near < x[0].Raw/10 {
			t.Errorf("too few bytes of the sample are near the guard's limit: %+v", x)
		}
	})
}

var recordedFlow = policy.Flow{Job: "digits", Protocol: "toy"}

// codeBoth codes recorded gradients by the path of a proxy, and by trials in so many bytes of memory. sent is the part
// of the bytes that was sent, once the job had begun.
func codeBoth(t *testing.T, text string, recorded [][][]byte, memory int64) (sent float64, results *shadow.Results) {
	t.Helper()
	const begun = 100 // values
	chosen, err := policy.New([]policy.Rule{{Roles: []tensor.Role{tensor.Gradient}, Codec: text}}, codeclist.New)
	if err != nil {
		t.Fatal(err)
	}
	path, err := estimate.New(estimate.Config{Codecs: codeclist.New, Policy: chosen})
	if err != nil {
		t.Fatal(err)
	}
	defer path.Close()
	trials := New(Config{Codecs: codeclist.New, Memory: memory, Share: 1})
	defer trials.Close()
	if err := trials.Try([]string{text}); err != nil {
		t.Fatal(err)
	}
	flow, seen := path.Flow(recordedFlow), trials.Watch("tokyo", nil)
	var from estimate.Size
	for step, grads := range recorded {
		if step == begun {
			from = flow.Size(tensor.Gradient)
		}
		for k, raw := range grads {
			g := tensor.Tensor{Key: uint64(k + 1), Role: tensor.Gradient, Proof: tensor.ByCall, DType: tensor.Float32, Size: len(raw), Hold: len(raw)}
			if err := flow.Send(raw, []parser.Segment{{Len: len(raw), Tensor: g}}); err != nil {
				t.Fatal(err)
			}
			seen.See(recordedFlow, &g, raw)
		}
		time.Sleep(time.Second) // in the bubble: until the trials of these values are done
	}
	to := flow.Size(tensor.Gradient)
	return float64(to.Wire-from.Wire) / float64(to.Raw-from.Raw), trials.current.Load().Results()
}
