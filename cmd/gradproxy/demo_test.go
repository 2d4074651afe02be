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
)

// The demo in small, with real proxies: lossless coding ends with the weights of the direct run; loss in the first phase of
// the ring ends with other weights, but the same ones on both ranks; loss in the sums lets the ranks differ, a little. Through
// a parameter server the workers stay alike, whatever is lost. On each wire each of these runs saves more bytes than the one
// before. Every other method may lose something in the first phase of the ring too, and the ranks still end with the same weights.
func TestDemoInSmall(t *testing.T) {
	report, err := demo.Do(t.Context(), demo.Options{
		Link: demo.Link{Rate: 1e9, RTT: time.Millisecond}, Steps: 12, Model: []int{256}, Seed: 1, All: true, Through: throughProxies,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	onGloo := 1 + len(demo.AllCodes("gloo"))
	if want := onGloo + 1 + len(demo.AllCodes("pslite")); len(report.Runs) != want {
		t.Fatalf("%d runs, want %d", len(report.Runs), want)
	}
	lossless, summands, sums := report.Runs[1], report.Runs[2], report.Runs[3]
	if !lossless.SameAsDirect || !lossless.ReplicasIdentical {
		t.Errorf("lossless coding has changed something: %+v", lossless)
	}
	if summands.SameAsDirect || !summands.ReplicasIdentical || summands.ReplicaDistance != 0 {
		t.Errorf("loss in the first phase: %+v", summands)
	}
	if sums.ReplicasIdentical || sums.ReplicaDistance <= 0 || sums.ReplicaDistance >= 0.02 {
		t.Errorf("loss in the sums: %+v", sums)
	}
	for _, r := range report.Runs[4:onGloo] { // every method, in the first phase
		if r.SameAsDirect || !r.ReplicasIdentical || r.ReplicaDistance != 0 || r.Ratio < 1.1 {
			t.Errorf("loss in the first phase: %+v", r)
		}
	}
	ordered, onServer := report.Runs[:4], report.Runs[onGloo:]
	if r := onServer[1]; !r.SameAsDirect || !r.ReplicasIdentical {
		t.Errorf("lossless coding has changed something: %+v", r)
	}
	for _, r := range onServer[2:] {
		if r.SameAsDirect || !r.ReplicasIdentical || r.ReplicaDistance != 0 {
			t.Errorf("loss on the way to the server or back: %+v", r)
		}
	}
	for _, runs := range [][]demo.Result{ordered, onServer} {
		for i, r := range runs[1:] {
			if before := runs[i]; r.Ratio <= 1.1*before.Ratio {
				t.Errorf("%s, %s: %.3g times fewer bytes than direct, the run before %.3g", r.Wire, r.Name, r.Ratio, before.Ratio)
			}
		}
	}
	if r := onServer[3]; r.Ratio < 10 {
		t.Errorf("loss both ways saves only %.3g times the bytes", r.Ratio)
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
	for _, c := range [][2]string{
		{"gloo", "Two processes"}, {"gloo", "direct: step 1"}, {"gloo", "direct: step 2"}, {"gloo", "int8: step 1"}, {"gloo", "never said"},
		{"ps-lite", "direct: step 1"}, {"ps-lite", "int8: step 1"}, {"ps-lite", "never said"},
	} {
		wire, until := c[0], c[1]
		t.Run(wire+", "+until, func(t *testing.T) {
			goroutines, files := runtime.NumGoroutine(), openFiles(t)
			code, stderr := run(t, wire, until)
			wantCode, wantErr := 1, "gradproxy: demo: interrupted\n"
			if until == "never said" {
				wantCode, wantErr = 0, ""
			}
			if code != wantCode || stderr != wantErr {
				t.Errorf("exit code %d and %q, want %d and %q", code, stderr, wantCode, wantErr)
			}
			// Goroutines whose connection was closed may need a moment to see it.
			for begin := time.Now(); runtime.NumGoroutine() > goroutines || openFiles(t) > files; time.Sleep(time.Millisecond) {
				if time.Since(begin) > 10*time.Second {
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
