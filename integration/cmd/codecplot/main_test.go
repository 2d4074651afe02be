package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The rows of bench codecs are drawn, whatever other figures they have; of anything else nothing is written.
func TestDraw(t *testing.T) {
	var out bytes.Buffer
	const rows = `{"rows": [{"codec": "int4", "data": "lm", "dtype": "float32", "ratio": 7.8, "nmse": 0.01, "encode_gbps": 2}]}`
	if err := draw(strings.NewReader(rows), &out); err != nil || !strings.Contains(out.String(), ">int4</text>") {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
	for _, text := range []string{"codec  ratio\n", `{"rows": []}`} {
		out.Reset()
		if err := draw(strings.NewReader(text), &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %d bytes", text, err, out.Len())
		}
	}
}

// The rows that bench codecs has made, which a test of the command compares with the command's output, are all drawn:
// each codec's name stands in the panel of each data.
func TestDrawOfBench(t *testing.T) {
	text, err := os.ReadFile("../../../docs/data/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var bench struct{ Rows []struct{ Codec string } }
	if err := json.Unmarshal(text, &bench); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, r := range bench.Rows {
		want[r.Codec]++
	}
	var out bytes.Buffer
	if err := draw(bytes.NewReader(text), &out); err != nil {
		t.Fatal(err)
	}
	for codec, n := range want {
		if got := strings.Count(out.String(), ">"+codec+"</text>"); got != n {
			t.Errorf("%s stands %d times in the picture, want %d", codec, got, n)
		}
	}
	if len(want) < 20 {
		t.Errorf("only %d codecs", len(want))
	}
}
