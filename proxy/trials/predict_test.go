package trials

import (
	"math"
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

// A recorded sequence of gradients makes as many bytes on the path of a proxy as trials predict, within 5 %, though the
// tensors take turns and of the largest a piece is sampled: values count once the residual has settled, as it has on
// the path. Where the guard acts the trial says so, and no number: on the path it acts for longer and longer.
func TestTrialsPredictThePath(t *testing.T) {
	if require.Race {
		t.Skip("needs a build without the race detector, under which it takes half a minute")
	}
	recorded := record(t, 450, 1100)
	for text, guarded := range map[string]bool{"int4": false, "3lc(s=1.5)": false, "3lc(s=1.75)": true} {
		synctest.Test(t, func(t *testing.T) {
			sent, results := codeBoth(t, text, recorded)
			var predicted, raw float64
			behind := 0
			for k, b := range recorded[0] {
				x := results.Of(shadow.Name{Job: recordedFlow.Job, Protocol: recordedFlow.Protocol, Direction: recordedFlow.Direction.String(), Key: uint64(k + 1), Role: tensor.Gradient, Size: len(b)})
				if len(x) != 1 || x[0].Raw == 0 || x[0].Early > 0 && !guarded {
					t.Fatalf("%s: tensor %d: %+v", text, k, x)
				}
				behind += x[0].Behind
				predicted, raw = predicted+float64(len(b))*float64(x[0].Wire)/float64(x[0].Raw), raw+float64(len(b))
			}
			d := predicted/raw/sent - 1
			t.Logf("%s: %.5f of the bytes predicted, %.5f sent: %+.1f %%; the guard acted on %d blocks of the trial", text, predicted/raw, sent, 100*d, behind)
			if guarded != (behind > 0) || !guarded && math.Abs(d) > 0.05 {
				t.Errorf("%s: the prediction is %+.1f %% off; the guard acted on %d blocks", text, 100*d, behind)
			}
		})
	}
}

var recordedFlow = policy.Flow{Job: "digits", Protocol: "toy"}

// codeBoth codes recorded gradients by the path of a proxy, and by trials with so little memory that tensors take
// turns. sent is the part of the bytes that was sent, once the job had begun.
func codeBoth(t *testing.T, text string, recorded [][][]byte) (sent float64, results *shadow.Results) {
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
	trials := New(Config{Codecs: codeclist.New, Memory: 3 << 20, Share: 1}) // memory for one large tensor at a time
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
