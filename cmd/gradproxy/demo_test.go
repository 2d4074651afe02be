package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
	"github.com/gradproxy/gradproxy/integration/require"
)

// The demo in small, with real proxies: lossless coding ends with the weights of the direct run; loss in the first
// phase of the ring ends with other weights, but the same ones on both ranks; loss in the sums lets the ranks differ, a
// little. Through a parameter server the workers stay alike with any loss, and so do two hospitals whose models or
// differences a server averages. On each wire each run saves more bytes than the one before.
func TestDemoInSmall(t *testing.T) {
	small := demo.Options{Link: demo.Link{Rate: 1e9, RTT: time.Millisecond}, Steps: 12, Model: []int{256}, Seed: 1, Through: throughProxies}
	tiny := small
	tiny.Model = []int{64}
	if require.Race { // other tests have it watch gloo and pslite
		tiny.Steps = 6
		inSmallFederated(t, tiny)
		inSmallByServer(t, tiny, "tensorflow", 2)
		inSmallByServer(t, tiny, "nvflare", 10)
		return
	}
	inSmallGloo(t, small)
	rounds := small
	rounds.Steps = 90 // the first models have no earlier ones to differ from
	inSmallFederated(t, rounds)
	inSmallByServer(t, tiny, "tensorflow", 6)
	inSmallByServer(t, tiny, "nvflare", 30)
	small.All = true
	inSmallPslite(t, small)
}

// inSmall runs the demo on a wire and returns its runs, want in number. Each saves more than more times the bytes of
// the one before, but for the few steps under the race detector.
func inSmall(t *testing.T, o demo.Options, wire string, want int, more float64) []demo.Result {
	t.Helper()
	o.Wires = []string{wire}
	report, err := demo.Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Runs) != want {
		t.Fatalf("%d runs on %s, want %d", len(report.Runs), wire, want)
	}
	for i, r := range report.Runs[1:] {
		if before := report.Runs[i]; r.Ratio <= more*before.Ratio && !require.Race {
			t.Errorf("%s, %s: %.3g times fewer bytes than direct, the run before %.3g", r.Wire, r.Name, r.Ratio, before.Ratio)
		}
	}
	return report.Runs
}

func inSmallGloo(t *testing.T, o demo.Options) {
	gloo := inSmall(t, o, "gloo", 4, 1.1)
	lossless, summands, sums := gloo[1], gloo[2], gloo[3]
	if !lossless.SameAsDirect || !lossless.ReplicasIdentical {
		t.Errorf("lossless coding has changed something: %+v", lossless)
	}
	if summands.SameAsDirect || !summands.ReplicasIdentical || summands.ReplicaDistance != 0 {
		t.Errorf("loss in the first phase: %+v", summands)
	}
	if sums.ReplicasIdentical || sums.ReplicaDistance <= 0 || sums.ReplicaDistance >= 0.02 {
		t.Errorf("loss in the sums: %+v", sums)
	}
}

func inSmallFederated(t *testing.T, o demo.Options) {
	flower := inSmall(t, o, "flower", 3, 1.1)
	if r := flower[1]; !r.SameAsDirect || !r.ReplicasIdentical || r.Ratio < 1.5 && !require.Race {
		t.Errorf("lossless coding has changed something, or saves only %.3g times the bytes: %+v", r.Ratio, r)
	}
	if r := flower[2]; r.SameAsDirect || !r.ReplicasIdentical {
		t.Errorf("loss in the differences of models: %+v", r)
	}
}

// inSmallByServer runs the demo on a wire where loss is on the way to a server, on the way back, or both.
func inSmallByServer(t *testing.T, o demo.Options, wire string, steps int) {
	o.Steps = steps
	got := inSmall(t, o, wire, 3, 1.1)
	if r := got[1]; !r.SameAsDirect || !r.ReplicasIdentical {
		t.Errorf("lossless coding has changed something: %+v", r)
	}
	if r := got[2]; r.SameAsDirect || !r.ReplicasIdentical || r.ReplicaDistance != 0 {
		t.Errorf("loss on the way to the server or back: %+v", r)
	}
}

func inSmallPslite(t *testing.T, o demo.Options) {
	server := inSmall(t, o, "pslite", 4, 1) // pushes lose from the first on: the last two differ by 3 %
	if r := server[1]; !r.SameAsDirect || !r.ReplicasIdentical {
		t.Errorf("lossless coding has changed something: %+v", r)
	}
	for _, r := range server[2:] {
		if r.SameAsDirect || !r.ReplicasIdentical || r.ReplicaDistance != 0 {
			t.Errorf("loss on the way to the server or back: %+v", r)
		}
	}
	if r := server[3]; r.Ratio < 5 {
		t.Errorf("loss both ways saves only %.3g times the bytes", r.Ratio)
	}
}

// Every method may lose something in the first phase of the ring, and the ranks still end with the same weights: they
// have got identical sums.
func TestEveryMethodInSmall(t *testing.T) {
	report, err := demo.Do(t.Context(), demo.Options{Link: demo.Link{Rate: 1e9, RTT: time.Millisecond}, Wires: []string{"gloo"}, All: true,
		Steps: 6, Model: []int{64}, Seed: 1, Through: throughProxies}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(demo.AllCodes("gloo")); len(report.Runs) != want {
		t.Fatalf("%d runs, want %d", len(report.Runs), want)
	}
	for _, r := range report.Runs[4:] {
		if !r.ReplicasIdentical || r.ReplicaDistance != 0 || r.Ratio < 1.05 {
			t.Errorf("loss in the first phase: %+v", r)
		}
	}
}

// However far a demo has come when it is interrupted: it ends, says so in one line, and leaves no goroutine and no
// descriptor behind. Nor does one that has come to its end.
func TestDemoLeavesNothingBehind(t *testing.T) {
	run := func(t *testing.T, wire, until string) (code int, stderr string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var errs bytes.Buffer
		code = execute(ctx, []string{"demo", "--rate", "1G", "--rtt", "1ms", "--steps", "2", "--wire", wire, "--codec", "int8"}, &stopper{text: until, stop: cancel}, &errs)
		return code, errs.String()
	}
	run(t, "gloo", "never said") // whatever is started once and for all
	cases := [][2]string{
		{"gloo", "Two processes"}, {"gloo", "direct: step 1"}, {"gloo", "direct: step 2"}, {"gloo", "int8: step 1"}, {"gloo", "never said"},
		{"ps-lite", "direct: step 1"}, {"ps-lite", "int8: step 1"}, {"ps-lite", "never said"},
	}
	if !require.Race { // it sees no more here than in TestDemoInSmall, and takes long
		cases = append(cases, [][2]string{{"tensorflow", "int8: step 1"}, {"tensorflow", "never said"}, {"nvflare", "int8: step 1"}, {"nvflare", "never said"}}...)
	}
	for _, c := range cases {
		wire, until := c[0], c[1]
		t.Run(wire+", "+until, func(t *testing.T) {
			goroutines, files := runtime.NumGoroutine(), openFiles(t)
			code, stderr := run(t, wire, until)
			wantCode, wantErr := 130, "gradproxy: demo: interrupted\n"
			if until == "never said" {
				wantCode, wantErr = 0, ""
			}
			if code != wantCode || stderr != wantErr {
				t.Errorf("exit code %d and %q, want %d and %q", code, stderr, wantCode, wantErr)
			}
			// Goroutines whose connection was closed may need a moment to see it.
			for begin := time.Now(); runtime.NumGoroutine() > goroutines || openFiles(t) > files; time.Sleep(time.Millisecond) {
				if time.Since(begin) > time.Minute {
					var stacks [1 << 16]byte
					t.Fatalf("%d goroutines before and %d after, %d files before and %d after:\n%s", goroutines, runtime.NumGoroutine(),
						files, openFiles(t), stacks[:runtime.Stack(stacks[:], true)])
				}
			}
		})
	}
}

// A stopper calls stop when text is written.
type stopper struct {
	text string
	stop func()
}

func (s *stopper) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		s.stop()
	}
	return len(b), nil
}

// openFiles counts this process's open files, sockets included, where that can be known.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	return len(entries)
}
