package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The names of the JSON object are a promise; and a whole paper is measured on what the program has in itself.
func TestBenchPapersJSON(t *testing.T) {
	out, stderr, err := runBench("papers", "--quick", "--paper=3lc", "--json")
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	var got struct {
		Tables []struct {
			Paper, Table string
			Rows         []map[string]any
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
			}
			if holds := r["holds"].(bool); holds != (r["why"] == "") {
				t.Errorf("a reason is given just where a row does not hold: %v", r)
			} else if holds {
				held++
			}
		}
	}
	if held < 10 {
		t.Errorf("only %d rows hold", held)
	}
	if calibrated != 1 {
		t.Errorf("%d rows are calibrated, want one", calibrated)
	}
}

// What has no data is left out with one line that says how to get it.
func TestBenchPapersWithoutData(t *testing.T) {
	out, stderr, err := runBench("papers", "--quick", "--paper=fastsgd", "--data", t.TempDir(), "--json")
	if err != nil {
		t.Fatal(err)
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

func TestBenchPapersUsage(t *testing.T) {
	_, _, err := runBench("papers", "--paper=3cl")
	if _, ok := err.(*usageError); !ok || !strings.Contains(err.Error(), "3lc") {
		t.Errorf("%v is no error of usage that names the papers", err)
	}
}
