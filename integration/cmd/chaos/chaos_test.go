//go:build linux

package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Thirty seeds on real processes break no promise, also where one process is the program of the commit before.
func TestRealSeeds(t *testing.T) {
	require.Long(t)
	t.Chdir("../../..")
	previous := "HEAD^"
	if exec.Command("git", "rev-parse", "--verify", "--quiet", previous).Run() != nil {
		previous = "" // a checkout without history
	}
	l, err := newLab(t.Context(), t.TempDir(), "", previous)
	if err != nil {
		t.Fatal(err)
	}
	err = l.playAll(t.Context(), 1, 30, func(r row) error {
		if r.Outcome != "ok" {
			t.Errorf("seed %d, %v: %s", r.Seed, r.Faults, r.Outcome)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each promise that is broken is seen.
func TestFaultsAreSeen(t *testing.T) {
	reset := errors.New("connection reset")
	for want, spoil := range map[string]func(e *exchange){
		"":                         func(*exchange) {},
		"the checksum":             func(e *exchange) { e.sides[1].got[20] ^= 1 },
		"a FIN came after":         func(e *exchange) { e.sides[0].got = e.sides[0].got[:10] },
		"a FIN came, and the othe": func(e *exchange) { e.sides[0].ended = false },
		"has not ended":            func(e *exchange) { e.sides[1].over = time.Time{} },
		"reset for no reason":      func(e *exchange) { e.sides[0].end = reset },
		"the checksum of 10":       func(e *exchange) { e.sides[0].got = e.sides[0].got[5:15] },
	} {
		r := rand.New(rand.NewPCG(1, 1))
		e := &exchange{scripts: [2]script{newScript(r, 1, 1000, time.Second), newScript(r, 1, 1000, time.Second)}, begun: time.Unix(10, 0)}
		for i := range e.sides {
			e.sides[i] = side{begun: true, got: append([]byte(nil), e.scripts[1-i].all...), end: io.EOF, ended: true, over: time.Unix(20, 0)}
		}
		spoil(e)
		if got := e.fault(nil); !strings.HasPrefix(got, want) && !strings.Contains(got, want) || got != "" && want == "" {
			t.Errorf("%q is seen as %q", want, got)
		}
		if want == "reset for no reason" {
			if got := e.fault([]interval{{time.Unix(5, 0), time.Unix(10, 0)}}); got != "" {
				t.Errorf("a reset with a reason is seen as %q", got)
			}
		}
	}
}

// The slope is that of the line through the samples.
func TestSlope(t *testing.T) {
	var samples []sample
	for i := range 10 {
		samples = append(samples, sample{Seconds: float64(10 * i), RSS: 1000 + 30*float64(i)})
	}
	if got := slope(samples, func(s sample) float64 { return s.RSS }); got < 2.999 || got > 3.001 {
		t.Errorf("slope %v, want 3", got)
	}
}

// A row of any length is read, and one that is cut off is an error: no seed is left out unseen.
func TestRowsAreReadWhole(t *testing.T) {
	file := t.TempDir() + "/rows"
	long := `{"seed":1,"outcome":"` + strings.Repeat("a FIN came; ", 10_000) + `"}` + "\n" + `{"seed":2,"outcome":"ok"}` + "\n"
	for text, want := range map[string]int{long: 2, long[:len(long)-5]: -1, "": 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if rows, err := readRows(file); (err != nil) != (want < 0) || err == nil && len(rows) != want {
			t.Errorf("%d rows of %d bytes, %v, want %d", len(rows), len(text), err, want)
		}
	}
}

// The rows of a file become one line for each fault, and one for all.
func TestTable(t *testing.T) {
	file := t.TempDir() + "/rows"
	const rows = `{"seed":1,"faults":["kill","kill"],"streams":3,"complete":2,"reset":1,"bytes":1000000,"outcome":"ok"}
{"seed":2,"faults":["stop","kill"],"streams":1,"complete":1,"outcome":"a FIN came"}
`
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := table(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| kill | 2 | 4 | 3 | 1 | 1.0 | 0.00 | 1 |", "| stop | 1 | 1 | 1 | 0 | 0.0 | 0.00 | 1 |", "| **all seeds** | 2 | 4 | 3 | 1 | 1.0 | 0.00 | 1 |"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
}
