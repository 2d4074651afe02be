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
	down, up uint64 // bytes on the link, to the clients and from them
}

// runNVFlare runs a job over link, through the proxies of c if there are any.
func runNVFlare(t *testing.T, link wansim.Link, c *testbed.Config, args ...string) (l nvflareLeg, ps testbed.Proxies) {
	t.Helper()
	job := newJob(t, "nvflare", "nvflare_job.py", 2, nil)
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
			// Over http clients mask their bytes.
			if got.down >= direct.down || scheme != "http" && got.up >= direct.up {
				t.Errorf("%d bytes down and %d up, want fewer than the %d and %d of a direct run", got.down, got.up, direct.down, direct.up)
			}
		})
	}
}

// The model that a server sends crosses the WAN once, however many clients are behind it.
func TestNVFlareModelCrossesOnce(t *testing.T) {
	t.Parallel()
	var one, three nvflareLeg
	t.Run("one client", func(t *testing.T) {
		one, _ = runNVFlare(t, fast, &testbed.Config{}, "--scheme", "tcp", "--hidden", "256", "--clients", "1")
	})
	t.Run("three clients", func(t *testing.T) {
		three, _ = runNVFlare(t, fast, &testbed.Config{}, "--scheme", "tcp", "--hidden", "256", "--clients", "3")
	})
	if one.WeightsSHA256 == "" || three.WeightsSHA256 == "" {
		return // they say why
	}
	// Beside the model each client is sent the app, its tasks and acknowledgements, and those grow with their number.
	if more, model := float64(three.down)-float64(one.down), float64(three.DenseBytes*three.Steps); more > 0.5*model {
		t.Errorf("two more clients cost %.0f bytes down, want less than half of the %.0f that the model takes in all rounds", more, model)
	}
}

// Over a slow link NVFlare sends each frame again that is not acknowledged within 5 s, and this job is not done after 180 s. Through the proxies it ends,
// though they do not recognize all repeated frames.
func TestNVFlareOverSlowLink(t *testing.T) {
	t.Parallel()                                                                    // it waits for the link
	link := wansim.Link{Rate: 120e3, Delay: 10 * time.Millisecond, Queue: 64 << 10} // 60 kB/s for each client
	const wide = 503                                                                // hidden neurons with which a model takes 1.6 MB
	l, _ := runNVFlare(t, link, &testbed.Config{}, "--scheme", "grpc", "--hidden", fmt.Sprint(wide), "--rounds", "1", "--timeout", "400")
	if l.down > uint64(2*l.DenseBytes) {
		t.Errorf("%d bytes came down, want fewer than one model for each client, %d", l.down, 2*l.DenseBytes)
	}
}
