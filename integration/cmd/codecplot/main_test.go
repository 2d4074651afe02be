package main

import (
	"bytes"
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
