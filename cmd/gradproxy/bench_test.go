package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runBench runs "gradproxy bench".
func runBench(args ...string) (stdout, stderr string, err error) {
	c := benchCommand()
	var out, errs bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err = c.Execute()
	return out.String(), errs.String(), err
}

// The names of the JSON object are a promise.
func TestBenchCodecsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.int32")
	if err := os.WriteFile(file, bytes.Repeat([]byte{1, 0, 0, 0, 2, 0, 0, 0}, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := runBench("codecs", "--mib=1", "--rounds=1", "--json", "--codec=lossless(level=fast)", "--data=cnn", "--data", file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Rows []map[string]any }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(got.Rows) != 2 {
		t.Fatalf("%d rows, want one for each data", len(got.Rows))
	}
	want := []string{"bits_per_value", "codec", "cosine", "data", "decode_gbps", "decode_vs_copy", "dtype", "elements", "encode_gbps",
		"encode_vs_copy", "encoded_bytes", "max_abs_error", "nmse", "ratio", "sign_flips", "steps"}
	if names := slices.Sorted(maps.Keys(got.Rows[0])); !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
	first, second := got.Rows[0], got.Rows[1]
	if first["codec"] != "lossless(level=fast)" || first["data"] != "cnn" || first["dtype"] != "float32" || first["elements"] != 65536.0 || first["steps"] != 2.0 {
		t.Errorf("cnn: %v", first)
	}
	if first["cosine"] != 1.0 || first["nmse"] != 0.0 || first["ratio"].(float64) < 1.13 || first["encode_gbps"].(float64) <= 0 || first["decode_vs_copy"].(float64) <= 0 {
		t.Errorf("cnn: %v", first)
	}
	if second["data"] != file || second["dtype"] != "int32" || second["elements"] != 1000.0 {
		t.Errorf("the file: %v", second)
	}
}

func TestBenchCodecsTable(t *testing.T) {
	out, _, err := runBench("codecs", "--mib=1", "--rounds=1", "--codec=lossless", "--data=lm", "--data=lm-bf16")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "codec") || !strings.Contains(lines[2], "lm-bf16") {
		t.Errorf("a heading and two rows should be there:\n%s", out)
	}
}

// Everything that is wrong with a command line is said at once, before anything is measured.
func TestBenchCodecsUsage(t *testing.T) {
	_, _, err := runBench("codecs", "--mib=1", "--rounds=1", "--codec=losless", "--codec=lossless(level=best)", "--data=cmm", "--data=missing.f32")
	usage, ok := err.(*usageError)
	if !ok {
		t.Fatalf("%v is no error of usage", err)
	}
	for _, says := range []string{"no codec is called losless", "level is best", `"cmm"`, `"missing.f32": no such file`} {
		if !strings.Contains(usage.Error(), says) {
			t.Errorf("%v; want it to say %q", usage, says)
		}
	}
	if _, _, err := runBench("codecs", "--mib=0", "--rounds=-1"); err == nil || !strings.Contains(err.Error(), "--mib is 0") || !strings.Contains(err.Error(), "--rounds is -1") {
		t.Errorf("no memory, fewer than no rounds: %v", err)
	}
	if _, _, err := runBench(); err == nil || !strings.Contains(err.Error(), "bench --help") {
		t.Errorf("bench alone: %v", err)
	}
}
