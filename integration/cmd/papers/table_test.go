package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Whether a row holds is computed: it is so at both ends of its band and not beyond them, and only then is there a
// reason.
func TestHoldsIsComputed(t *testing.T) {
	for _, c := range []struct {
		name      string
		claim     claim
		low, high float64 // the ends
	}{
		{"a factor", claim{paper: 107, why: "the data"}.within(2), 53.5, 214},
		{"a factor of a small figure", claim{paper: 0.25}.within(2), 0.125, 0.5},
		{"a distance", claim{paper: -0.05, why: "few steps"}.near(1), -1.05, 0.95},
		{"no distance", claim{paper: 32}.near(0), 32, 32},
		{"an interval", claim{paper: 16, band: between(8, 16)}, 8, 16},
		{"one end", claim{paper: 18720, band: minimum(10000)}, 10000, math.Inf(1)},
		{"the other end", claim{paper: 2, band: maximum(2.2)}, math.Inf(-1), 2.2},
	} {
		for _, v := range []struct {
			here  float64
			holds bool
		}{
			{c.low, true}, {c.high, true}, {(c.low + c.high) / 2, !math.IsNaN((c.low + c.high) / 2)},
			{math.Nextafter(c.low, math.Inf(-1)), math.IsInf(c.low, -1)}, {math.Nextafter(c.high, math.Inf(1)), math.IsInf(c.high, 1)},
			{math.NaN(), false},
		} {
			var table Table
			table.add(c.claim, v.here)
			r := table.Rows[0]
			if r.Holds != v.holds {
				t.Errorf("%s, %v to %v: %v holds: %v", c.name, c.low, c.high, v.here, r.Holds)
			}
			if reason := r.Why != ""; reason == r.Holds {
				t.Errorf("%s: %v holds: %v, because %q", c.name, v.here, r.Holds, r.Why)
			}
			if !r.Holds && c.claim.why != "" && r.Why != c.claim.why {
				t.Errorf("%s: the reason is %q, want %q", c.name, r.Why, c.claim.why)
			}
		}
	}
}

// JSON has the band, so that a reader can judge a row again; an end that a band has not is null.
func TestBandInJSON(t *testing.T) {
	for _, c := range []struct {
		band Band
		want string
	}{
		{between(53.5, 214), `"low":53.5,"high":214`},
		{minimum(10000), `"low":10000,"high":null`},
		{maximum(-0.5), `"low":null,"high":-0.5`},
	} {
		got, err := json.Marshal(Row{Label: "s=1.75", Quantity: "ratio", Paper: 107, Here: 120, Band: c.band, Holds: true})
		if want := `{"label":"s=1.75","quantity":"ratio","paper":107,"here":120,` + c.want + `,"holds":true,"why":"","calibrated":false}`; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// A calibrated row does not count as one that holds.
func TestCalibratedText(t *testing.T) {
	var table Table
	table.add(claim{label: "3LC", quantity: "speed-up", paper: 1.53, calibrated: true}.within(1.25), 1.53)
	var out strings.Builder
	WriteText(&out, table)
	if s := out.String(); strings.Contains(s, "yes") || !strings.Contains(s, " -  ") || !strings.Contains(s, "0 of 0 rows hold; 1 by construction") {
		t.Errorf("the row reads\n%s", s)
	}
}

func TestText(t *testing.T) {
	table := Table{Paper: "3lc", Table: "Table 2", Title: "traffic", Quick: true}
	table.setup("%d steps", 7)
	table.add(claim{label: "s=1.00", quantity: "ratio", paper: 39.4, why: "no reason"}.within(2), 40)
	table.add(claim{label: "s=1.90", quantity: "bits", paper: 0.2, why: "the data is other"}.within(2), 0.5)
	var out strings.Builder
	WriteText(&out, table)
	for _, says := range []string{"3lc, Table 2: traffic", "quick", "7 steps", "paper", "here", "holds", "19.70 to 78.80", "s=1.90, bits: the data is other"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("the text does not say %q:\n%s", says, out.String())
		}
	}
	if strings.Contains(out.String(), "no reason") {
		t.Errorf("a row that holds has a reason:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 4 && f[1] == "ratio" && (f[2] != "39.40" || f[3] != "40.00" || f[4] != "yes") {
			t.Errorf("the row reads %q", line)
		}
	}
}

// Rows that hold by construction are marked, in every table that needs no data.
func TestCalibratedRows(t *testing.T) {
	require.Long(t)
	var marked []string
	report := func(table Table) {
		for _, r := range table.Rows {
			if r.Calibrated {
				marked = append(marked, table.Table+": "+r.Label)
			}
		}
	}
	if err := Run(t.Context(), Config{Papers: []string{"sketchedsgd", "gspar"}, Quick: true, Data: t.TempDir()}, report, nil); err != nil {
		t.Fatal(err)
	}
	var gspar int
	for _, m := range marked {
		if strings.HasPrefix(m, "Figure 1: ") || strings.HasPrefix(m, "Figure 2: ") {
			gspar++
			if strings.Contains(m, "UniSp") {
				t.Errorf("%s is measured, and yet marked", m)
			}
		}
	}
	if gspar != 36 {
		t.Errorf("%d rows of GSpar's variance are marked, want 36", gspar)
	}
	want := []string{"Section 5.3: transformer, 20x", "Section 5.3: transformer, 40x", "Section 5.3: LSTM, 40x",
		"Figure 4: sketched, 4 workers", "Figure 4: sketched, 64 workers", "Figure 4: sketched, 256 workers"}
	if rest := marked[gspar:]; !slices.Equal(rest, want) {
		t.Errorf("of Sketched-SGD %q are marked, want %q", rest, want)
	}
}
