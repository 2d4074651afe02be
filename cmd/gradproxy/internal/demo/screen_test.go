package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Without a terminal: what is run, a few lines for each run, the table once, and a verdict.
func TestLinesWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	show(t, newScreen(&out, Options{Steps: 50, Link: Link{Rate: 50e6, RTT: 60 * time.Millisecond, Loss: 0.01}}, twoRuns()))
	text := out.String()
	if strings.Contains(text, "\x1b") {
		t.Errorf("escape sequences:\n%q", text)
	}
	for want, times := range map[string]int{
		"across a link of 50 Mbit/s and 60ms round trip, 1 % lost.\n": 1,
		"gloo direct: step ":                         5,
		"gloo lossless: step 50 of 50, loss 0.500, ": 1,
		"│ replicas  │ weights":                      1,
		"│ gloo lossless │ 50/50 │ 0.250 │":          1,
		"gloo lossless: 1.2 times fewer bytes, and all ranks end with exactly the weights of the direct run.\n": 1,
	} {
		if n := strings.Count(text, want); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", want, n, times, text)
		}
	}
}

// On a terminal each table takes the place of the one before it.
func TestLiveTableIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, Options{Steps: 50}, twoRuns())
	s.live = true
	show(t, s)
	tables := strings.Split(out.String(), "\x1b[6A\x1b[J") // header, two rows and three rules
	if len(tables) < 4 {
		t.Fatalf("%d tables in\n%q", len(tables), out.String())
	}
	for i, table := range tables {
		lines := strings.Count(table, "\n")
		if i == 0 {
			lines-- // the introduction
		}
		if i == len(tables)-1 {
			lines-- // the verdict
		}
		if lines != 6 {
			t.Errorf("table %d has %d lines, 6 are replaced:\n%s", i, lines, table)
		}
	}
}

func twoRuns() []Run {
	return []Run{{Wire: "gloo", Name: Direct}, {Wire: "gloo", Name: Lossless}}
}

// show plays a demo of two runs of 50 steps.
func show(t *testing.T, s *screen) {
	t.Helper()
	for _, r := range twoRuns() {
		end := s.begin(r, func() (uint64, uint64) { return 1e6, 2e6 })
		for range 50 {
			s.step(0.5)
		}
		end()
		s.done(Result{Wire: r.Wire, Name: r.Name, Seconds: 2, WANBytes: 3e6, Ratio: 1.2, FinalLoss: 0.25, Accuracy: 0.9, ReplicasIdentical: true, SameAsDirect: true})
	}
	s.end()
}

func TestVerdicts(t *testing.T) {
	for want, r := range map[string]Result{
		"gloo x: 2.29 times fewer bytes, and all ranks end with the same weights, bit for bit, though not those of the direct run.": {Ratio: 2.29, ReplicasIdentical: true},
		"gloo x: 11 times fewer bytes, and the ranks' weights end 0.008 apart, relative to their norm.":                             {Ratio: 11, ReplicaDistance: 0.008},
		"gloo x: 1.25 times as many bytes, and all ranks end with exactly the weights of the direct run.":                           {Ratio: 0.8, ReplicasIdentical: true, SameAsDirect: true},
	} {
		r.Wire, r.Name = "gloo", "x"
		if got := verdict(r); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The current rate is that of the last second, whatever came before.
func TestRateIsThatOfTheLastSecond(t *testing.T) {
	var there, back uint64
	m := traffic{carried: func() (uint64, uint64) { return there, back }}
	begin := time.Unix(0, 0)
	for i := range 20 {
		m.sample(begin.Add(time.Duration(i) * 250 * time.Millisecond))
		if i < 10 {
			there += 1e9
		} else {
			there, back = there+250e3, back+125e3
		}
	}
	if got := m.String(); got != "8.0 / 4.0" {
		t.Errorf("%s Mbit/s, want 8.0 / 4.0", got)
	}
	if len(m.samples) > 6 {
		t.Errorf("%d samples are kept", len(m.samples))
	}
	there, back = 10e6, 5e6
	if got := m.mean(4); got != "20.0 / 10.0" {
		t.Errorf("mean of %s Mbit/s, want 20.0 / 10.0", got)
	}
}

func TestDistanceIsRelative(t *testing.T) {
	r := run{Options: small()}
	m, same, other := r.model(0).Params(), r.model(0).Params(), r.model(0).Params()
	if d := distance(m, same); d != 0 || sum(m) != sum(same) {
		t.Errorf("equal weights are %g apart", d)
	}
	for _, p := range other {
		for i := range p.Value {
			p.Value[i] *= 1.5
		}
	}
	if d := distance(other, m); d < 0.499 || d > 0.501 || sum(m) == sum(other) {
		t.Errorf("weights of 1.5 times the norm are %g apart, want 0.5", d)
	}
}
