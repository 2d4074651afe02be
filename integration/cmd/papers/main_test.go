package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// run runs a command line.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

// The names of the JSON object are a promise; and a whole paper is measured on the digits that the program has in
// itself.
func TestPapersJSON(t *testing.T) {
	out, stderr, code := run(t, "--quick", "--paper=3lc", "--json")
	if code != 0 || stderr != "" {
		t.Fatal(code, stderr)
	}
	var got struct {
		Tables []struct {
			Paper, Table  string
			Rows          []map[string]any
			Counted, Held int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(got.Tables) != 2 || got.Tables[0].Paper != "3lc" || got.Tables[0].Table != "Table 2" {
		t.Fatalf("want 3LC's two tables, Table 2 first: %+v", got.Tables)
	}
	held, calibrated := 0, 0
	if r := got.Tables[0].Rows[2]; r["label"] != "s=1.00" || r["quantity"] != "ratio" || r["paper"] != 39.4 || r["here"].(float64) < 20 {
		t.Errorf("the third row is %v", r)
	}
	for _, table := range got.Tables {
		counted, in := 0, 0
		for _, r := range table.Rows {
			if names, want := slices.Sorted(maps.Keys(r)), []string{"calibrated", "here", "high", "holds", "label", "low", "paper", "quantity", "why"}; !slices.Equal(names, want) {
				t.Fatalf("names are %q, want %q", names, want)
			}
			low, isLow := r["low"].(float64)
			high, isHigh := r["high"].(float64)
			here := r["here"].(float64)
			if !isLow && !isHigh || r["holds"] != ((!isLow || here >= low) && (!isHigh || here <= high)) {
				t.Errorf("the band does not give what the row says: %v", r)
			}
			if r["calibrated"] == true {
				calibrated++
			} else if counted++; r["holds"] == true {
				in++
			}
			if holds := r["holds"].(bool); holds != (r["why"] == "") {
				t.Errorf("a reason is given just where a row does not hold: %v", r)
			} else if holds {
				held++
			}
		}
		if table.Counted != counted || table.Held != in {
			t.Errorf("%s says that %d of %d rows hold, want %d of %d", table.Table, table.Held, table.Counted, in, counted)
		}
	}
	if held < 10 {
		t.Errorf("only %d rows hold", held)
	}
	// One of each design at 1 Gbit/s, 9; the two of packing without zero-run encoding; the bits a value of each of 4
	// levels.
	if calibrated != 15 {
		t.Errorf("%d rows are calibrated, want 15", calibrated)
	}
}

// A table without data is left out with one line that says how to get it.
func TestPapersWithoutData(t *testing.T) {
	out, stderr, code := run(t, "--quick", "--paper=fastsgd", "--data", t.TempDir(), "--json")
	if code != 0 {
		t.Fatal(code, stderr)
	}
	if strings.TrimSpace(out) != "{\n  \"tables\": []\n}" && strings.TrimSpace(out) != `{"tables":[]}` {
		t.Errorf("no table should be there:\n%s", out)
	}
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "fastsgd, ") || !strings.Contains(line, "fetch.sh") {
			t.Errorf("the line should name the table and what to run: %s", line)
		}
	}
	if stderr == "" {
		t.Error("nothing says that tables are left out")
	}
}

func TestPapersUsage(t *testing.T) {
	for _, args := range [][]string{{"--paper=3cl"}, {"--papers=3lc"}, {"3lc"}} {
		if _, stderr, code := run(t, args...); code != 2 || args[0] == "--paper=3cl" && !strings.Contains(stderr, "3lc") {
			t.Errorf("%q: exit code %d, want 2, and %q should name the papers", args, code, stderr)
		}
	}
}
