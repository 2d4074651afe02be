package demo

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"
)

// Both workers end with the server's last variables, the same in each run, and variables and gradients cross the link
// for each of them.
func TestSynchronized(t *testing.T) {
	o := small()
	o.Wires, o.Codes = []string{"tensorflow"}, []string{Lossless}
	o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
		if want := (Run{Wire: "tensorflow", Name: Lossless}); r != want {
			t.Errorf("proxies are asked for %+v, want %+v", r, want)
		}
		return &relay{between: between, plain: true}, nil
	}
	report, err := Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// 64-32-10 is 9,640 bytes; two workers pull it and have as much for the server at each of 4 steps, and pull it once
	// more.
	const minimum = (4*4 + 2) * 9640
	for _, r := range report.Runs {
		if r.Wire != "tensorflow" || !r.ReplicasIdentical || r.ReplicaDistance != 0 || !r.SameAsDirect || r.Accuracy <= 0 {
			t.Errorf("%+v", r)
		}
		if r.AppBytes < minimum || r.AppBytes > 2*minimum {
			t.Errorf("%s: the processes have sent %d bytes, want at least %d", r.Name, r.AppBytes, minimum)
		}
	}
}

// A job that is stopped in its first step ends with that error, on both of the wires whose processes wait for calls of
// each other, and leaves no goroutine behind; nor does one that has come to its end.
func TestStopped(t *testing.T) {
	for _, wire := range []string{"tensorflow", "nvflare"} {
		for _, stops := range []bool{false, true} {
			before := runtime.NumGoroutine()
			o := small()
			o.Wires, o.Codes = []string{wire}, []string{}
			o.Through = func(context.Context, Run, Between) (Path, error) { return nil, nil }
			ctx, cancel := context.WithCancel(t.Context())
			if stops {
				o.After = cancel
			}
			if _, err := Do(ctx, o, io.Discard); errors.Is(err, context.Canceled) != stops {
				t.Errorf("%s, stopped: %v: %v", wire, stops, err)
			}
			cancel()
			// Goroutines whose connection was closed may need a moment to see it.
			for begin := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
				if time.Since(begin) > time.Minute {
					var stacks [1 << 16]byte
					t.Fatalf("%s, stopped: %v: %d goroutines before and %d after:\n%s", wire, stops, before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks[:], true)])
				}
			}
		}
	}
}

// One codec serves gradients and their sums or weights, or changes and models; of two codecs each serves one of them.
func TestCodesOfServers(t *testing.T) {
	for _, wire := range []string{"tensorflow", "nvflare"} {
		for code, want := range map[string]Run{
			"int8":      {Gradients: "int8", State: "int8"},
			"int8+int4": {Gradients: "int8", State: "int4"},
		} {
			want.Wire, want.Name = wire, code
			if r := newRun(wire, code); r != want || r.promise() != sameReplicas {
				t.Errorf("%+v promises %d, want %+v", r, r.promise(), want)
			}
		}
	}
}
