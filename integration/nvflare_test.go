//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// An nvflareLeg is how a job of NVFlare went: its server is at the first site, all its clients are at the second one.
type nvflareLeg struct {
	testbed.Result
	down, up uint64                         // bytes on the link, to the clients and from them
	arrays   [2]struct{ raw, wire float64 } // bytes of arrays as the apps have sent them and as they crossed, to the clients and from them
}

// runNVFlare runs a job over link, through the proxies of c if there are any.
func runNVFlare(t *testing.T, link wansim.Link, c *testbed.Config, args ...string) (l nvflareLeg, ps testbed.Proxies) {
	t.Helper()
	return runNVFlareIn(t, "nvflare", link, c, args...)
}

// runNVFlareIn is runNVFlare with NVFlare of an environment.
func runNVFlareIn(t *testing.T, environment string, link wansim.Link, c *testbed.Config, args ...string) (l nvflareLeg, ps testbed.Proxies) {
	t.Helper()
	job := newJob(t, environment, "nvflare_job.py", 2, nil)
	folder := filepath.Join(t.TempDir(), "job")
	job.Args = append([]string{"--folder", folder}, args...)
	t.Cleanup(func() {
		if t.Failed() {
			logLogs(t, folder)
		}
	})
	w := newWAN(t, 2, link)
	if c != nil {
		ps = startProxies(t, w, *c)
	}
	down, up := w.LinkBytesOf(0, 1)
	results := runJob(t, w, job)
	l.Result = results[0]
	l.down, l.up = w.LinkBytesOf(0, 1)
	l.down, l.up = l.down-down, l.up-up
	t.Logf("nvflare %s, %d clients: %d parameters, loss %.4f, accuracy %.3f, weights %.8s, job %.1f s (%.1f s in all), %d bytes down, %d up",
		l.Version, l.World, l.Parameters, l.Loss, l.Accuracy, l.WeightsSHA256, l.Seconds, l.Wall.Seconds(), l.down, l.up)
	for i, p := range ps {
		for _, role := range []string{"exact", "state", "gradient"} {
			raw, wire := tensors(t, testbed.Proxies{p}, fmt.Sprintf("role=%q", role))
			l.arrays[i].raw += raw
			l.arrays[i].wire += wire
		}
	}
	if ps != nil {
		t.Logf("arrays down: %.0f bytes cross of %.0f; up: %.0f of %.0f", l.arrays[0].wire, l.arrays[0].raw, l.arrays[1].wire, l.arrays[1].raw)
	}
	if n := sum(t, ps, "gradproxy_parsers_gave_up_total"); n != 0 {
		t.Errorf("%.0f directions of connections stopped being understood", n)
	}
	return l, ps
}

// logLogs logs the ends of the logs of NVFlare's processes.
func logLogs(t *testing.T, folder string) {
	files, _ := filepath.Glob(filepath.Join(folder, "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		t.Logf("%s: %v\n%s", filepath.Base(file), err, text[max(0, len(text)-3000):])
	}
}

// Over each of NVFlare's drivers a job ends with the direct run's weights, for fewer bytes.
func TestNVFlare(t *testing.T) {
	t.Parallel()
	var direct nvflareLeg
	t.Run("direct", func(t *testing.T) { direct, _ = runNVFlare(t, fast, nil, "--scheme", "tcp") })
	if direct.WeightsSHA256 == "" {
		return // it says why
	}
	for _, scheme := range []string{"tcp", "grpc", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			got, _ := runNVFlare(t, fast, &testbed.Config{}, "--scheme", scheme)
			if got.WeightsSHA256 != direct.WeightsSHA256 || got.Loss != direct.Loss {
				t.Errorf("the job ends with weights %.8s and loss %v, directly with %.8s and %v", got.WeightsSHA256, got.Loss, direct.WeightsSHA256, direct.Loss)
			}
			wantAccuracy(t, 0.65, got.Result)
			if got.down >= direct.down || got.up >= direct.up {
				t.Errorf("%d bytes down and %d up, want fewer than the %d and %d of a direct run", got.down, got.up, direct.down, direct.up)
			}
		})
	}
}

// Differences of weights in NumPy arrays, whose ZIP files have a CRC-32 that NVFlare compares, may lose something, over
// each driver: the job ends with the accuracy of a direct run, and the clients' arrays take fewer bytes than without
// loss.
func TestNVFlareLosesDifferences(t *testing.T) {
	t.Parallel()
	var direct, exact nvflareLeg
	lossy := map[string]*nvflareLeg{"tcp": {}, "grpc": {}, "http": {}}
	t.Run("legs", func(t *testing.T) {
		leg := func(name string, l *nvflareLeg, scheme string, c *testbed.Config) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				*l, _ = runNVFlare(t, fast, c, "--scheme", scheme, "--transfer", "DIFF", "--rounds", "4", "--hidden", "128")
			})
		}
		leg("direct", &direct, "http", nil)
		leg("exact", &exact, "http", &testbed.Config{})
		for scheme, l := range lossy {
			leg("lossy, "+scheme, l, scheme, &testbed.Config{Loss: testbed.Loss{Protocol: "nvflare", Gradients: "int8"}})
		}
	})
	if direct.WeightsSHA256 == "" || exact.WeightsSHA256 == "" {
		return // a leg says why
	}
	if direct.Accuracy < 0.6 || exact.WeightsSHA256 != direct.WeightsSHA256 {
		t.Errorf("accuracy %.3f; weights %.8s without loss, directly %.8s", direct.Accuracy, exact.WeightsSHA256, direct.WeightsSHA256)
	}
	for scheme, l := range lossy {
		if l.WeightsSHA256 == "" {
			continue // it says why
		}
		if l.Accuracy < direct.Accuracy-0.01 {
			t.Errorf("%s: the job ends with accuracy %.3f, directly with %.3f", scheme, l.Accuracy, direct.Accuracy)
		}
		if l.WeightsSHA256 == direct.WeightsSHA256 {
			t.Errorf("%s: nothing was lost", scheme)
		}
		if a, b := l.arrays[1], exact.arrays[1]; a.raw > 1.01*b.raw || a.wire > 0.5*b.wire {
			t.Errorf("%s: %.0f bytes of arrays cross up for %.0f, without loss %.0f for %.0f", scheme, a.wire, a.raw, b.wire, b.raw)
		}
	}
}

// PyTorch's tensors travel as safetensors, which have no checksum: without loss a job ends with the direct run's
// weights, and with a loss of what clients send, weights or differences, with its accuracy, for fewer bytes. Nothing
// else loses anything: whatever has lost something is what a client has announced as such, and an array of the server
// only by a rule on state.
func TestNVFlareTorch(t *testing.T) {
	t.Parallel()
	type run struct {
		name, transfer string
		role           string // of clients' arrays
		loss           testbed.Loss
		direct         bool
		leg            nvflareLeg
		lost           float64 // bytes of arrays, by the codec
		of             float64 // bytes of arrays of the role
	}
	runs := []*run{
		{name: "direct", transfer: "DIFF", direct: true},
		{name: "exact", transfer: "DIFF", role: "gradient"},
		{name: "differences", transfer: "DIFF", role: "gradient", loss: testbed.Loss{Protocol: "nvflare", Gradients: "int8"}},
		{name: "weights", transfer: "FULL", role: "state", loss: testbed.Loss{Protocol: "nvflare", State: "int8"}},
	}
	t.Run("legs", func(t *testing.T) {
		for _, r := range runs {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				var c *testbed.Config
				if !r.direct {
					c = &testbed.Config{Loss: r.loss}
				}
				var ps testbed.Proxies
				r.leg, ps = runNVFlareIn(t, "nvflaretorch", fast, c, "--scheme", "http", "--tensors", "torch", "--transfer", r.transfer, "--rounds", "3", "--hidden", "128")
				if ps != nil {
					byRole(t, ps)
					r.lost, _ = tensors(t, ps[1:], `codec="int8"`)
					r.of, _ = tensors(t, ps[1:], fmt.Sprintf("role=%q", r.role))
				}
			})
		}
	})
	direct, exact := runs[0].leg, runs[1].leg
	if direct.WeightsSHA256 == "" || exact.WeightsSHA256 == "" {
		return // a leg says why
	}
	if direct.Accuracy < 0.6 || exact.WeightsSHA256 != direct.WeightsSHA256 || runs[1].lost != 0 {
		t.Errorf("accuracy %.3f; weights %.8s without loss, directly %.8s; %.0f bytes by int8", direct.Accuracy, exact.WeightsSHA256, direct.WeightsSHA256, runs[1].lost)
	}
	for _, r := range runs[1:] {
		l := r.leg
		if l.WeightsSHA256 == "" {
			continue // it says why
		}
		results := float64(2 * l.Steps * l.DenseBytes) // of both clients
		if r.of < 0.98*results || r.of > results {
			t.Errorf("%s: %.0f bytes of clients' arrays are %s, want those of all results, %.0f, but for elements that two frames share", r.name, r.of, r.role, results)
		}
		if r == runs[1] {
			continue
		}
		if l.Accuracy < direct.Accuracy-0.02 || l.WeightsSHA256 == direct.WeightsSHA256 {
			t.Errorf("%s: the job ends with accuracy %.3f and weights %.8s, directly with %.3f and %.8s", r.name, l.Accuracy, l.WeightsSHA256, direct.Accuracy, direct.WeightsSHA256)
		}
		if a, b := l.arrays[1], exact.arrays[1]; r.lost < 0.5*results || a.wire > 0.6*b.wire {
			t.Errorf("%s: %.0f bytes lost something of %.0f; arrays cross up in %.0f bytes, without loss in %.0f", r.name, r.lost, results, a.wire, b.wire)
		}
	}
}

// The model that a server sends crosses the WAN once, however many clients are behind it.
func TestNVFlareModelCrossesOnce(t *testing.T) {
	t.Parallel()
	l, _ := runNVFlare(t, fast, &testbed.Config{}, "--scheme", "tcp", "--hidden", "256", "--clients", "3")
	// Other bytes, such as heartbeats, are not counted: they grow with the time that the job takes.
	model := float64(l.DenseBytes * l.Steps)
	if a := l.arrays[0]; a.raw < 2.9*model || a.wire > model {
		t.Errorf("%.0f bytes of arrays cross to three clients for %.0f that the server sends, want at most the %.0f of one model a round", a.wire, a.raw, model)
	}
}

// Over a slow link NVFlare sends each frame again that is not acknowledged within 5 s, and this job is not done after
// 180 s. Through the proxies it ends: a frame that comes again, here or to another client, costs next to nothing, so
// that the model crosses once, and each client's result too. Over http a client masks its frames.
func TestNVFlareOverSlowLink(t *testing.T) {
	t.Parallel() // it waits for the link
	for _, scheme := range []string{"grpc", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			l, _ := runNVFlare(t, slowNVFlare, &testbed.Config{}, slowNVFlareArgs(scheme)...)
			model := float64(l.DenseBytes)
			if a := l.arrays[0]; a.wire > model {
				t.Errorf("%.0f bytes of arrays cross down for %.0f that the server sends, want at most one model, %.0f", a.wire, a.raw, model)
			}
			if a := l.arrays[1]; a.wire > 2*model {
				t.Errorf("%.0f bytes of arrays cross up for %.0f that the clients send, want at most one result of each, %.0f", a.wire, a.raw, 2*model)
			}
		})
	}
}

// slowNVFlare is a link with 60 kB/s for each client.
var slowNVFlare = wansim.Link{Rate: 120e3, Delay: 10 * time.Millisecond, Queue: 64 << 10}

// slowNVFlareArgs are a job's over it.
func slowNVFlareArgs(scheme string) []string {
	const wide = 503 // hidden neurons with which a model takes 1.6 MB
	return []string{"--scheme", scheme, "--hidden", fmt.Sprint(wide), "--rounds", "1", "--timeout", "400"}
}
