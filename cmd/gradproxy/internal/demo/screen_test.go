package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Without a terminal: the runs, a few lines for each run, the table once, and a verdict.
func TestLinesWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	show(t, newScreen(&out, Options{Steps: 50, Link: Link{Rate: 50e6, RTT: 60 * time.Millisecond, Loss: 0.01}}, twoRuns()))
	text := out.String()
	if strings.Contains(text, "\x1b") {
		t.Errorf("escape sequences:\n%q", text)
	}
	for want, times := range map[string]int{
		"60ms round trip, 1 % lost. ":                                      1,
		"  lossless  two proxies, ":                                        1,
		"\ndirect: step ":                                                  5,
		"\nlossless: step 50 of 50, loss 0.500, ":                          1,
		"ratio   acc.  weights":                                            1,
		"lossless    50/50  0.250    2.0    3.0   1.20  0.900  as direct":  1,
		"\nlossless: 1.2 times fewer bytes on the WAN, as fast. Checked: ": 1,
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
	out.Reset() // the introduction
	s.live, s.columns = true, 79
	show(t, s)
	tables := strings.Split(out.String(), "\x1b[4A\x1b[J") // header, rule and two rows
	if len(tables) < 4 {
		t.Fatalf("%d tables in\n%q", len(tables), out.String())
	}
	for i, table := range tables {
		if i == len(tables)-1 {
			table, _, _ = strings.Cut(table, "\nlossless: ") // the verdict, and an empty line before it
			table = strings.TrimSuffix(table, "\n") + "\n"
		}
		if lines := strings.Count(table, "\n"); lines != 4 {
			t.Errorf("table %d has %d lines, 4 are replaced:\n%s", i, lines, table)
		}
	}
}

// The default runs' table fits a terminal of 80 columns, and does not grow; of a wider one each line is cut, since a
// line that wraps would stay when the table is drawn anew.
func TestTableFitsATerminal(t *testing.T) {
	var out bytes.Buffer
	o := Options{}.withDefaults()
	s := newScreen(&out, o, o.runs())
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > lineLen {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	out.Reset()
	s.live, s.columns = true, 80
	for _, r := range o.runs() {
		s.begin(r, func() (uint64, uint64) { return 0, 0 })()
		s.step(2.302)
		s.done(Result{Wire: r.Wire, Name: r.Name, Seconds: 123.4, WANBytes: 300e6, Ratio: 10.55, ReplicaDistance: 0.00123})
	}
	for line := range strings.Lines(out.String()) {
		if i := strings.LastIndex(line, "\x1b[J"); i >= 0 {
			line = line[i+len("\x1b[J"):]
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "0.0012 apart") {
		t.Errorf("the last column is cut off:\n%s", &out)
	}
	out.Reset()
	s.columns = 20
	s.draw()
	if line := strings.Split(out.String(), "\n")[2]; utf8.RuneCountInString(line) != 20 {
		t.Errorf("%q was not cut to 20 columns", line)
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

// The current rate is the last second's.
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
	if got := m.String(); got != "8/4 Mb/s" {
		t.Errorf("%s, want 8/4 Mb/s", got)
	}
	if len(m.samples) > 6 {
		t.Errorf("%d samples are kept", len(m.samples))
	}
	if d, n := m.elapsed(), m.bytes(); d != 4750*time.Millisecond || n != 10e9+9*375e3 {
		t.Errorf("%d bytes in %v", n, d)
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
