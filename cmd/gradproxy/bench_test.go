package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
	c.SetArgs(append([]string{}, args...)) // not nil, which stands for the arguments of this process
	err = c.Execute()
	return out.String(), errs.String(), err
}

// The command prints the rows of three codecs as docs/data/vectors.json has them. The test of integration/cmd/codecplot
// draws that file. The other codecs would take long.
func TestBenchCodecsMakesVectors(t *testing.T) {
	b, err := os.ReadFile("../../docs/data/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	rows := func(text []byte) map[string]map[string]any {
		var got struct{ Rows []map[string]any }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		byName := map[string]map[string]any{}
		for _, r := range got.Rows {
			byName[r["data"].(string)+" "+r["codec"].(string)] = r
		}
		return byName
	}
	recorded := rows(b)
	out, _, err := runBench("codecs", "--mib=1", "--rounds=1", "--json", "--data=cnn", "--data=lm", "--codec=lossless", "--codec=int4", "--codec=topk")
	if err != nil {
		t.Fatal(err)
	}
	made := rows([]byte(out))
	if len(made) != 6 {
		t.Fatalf("%d rows", len(made))
	}
	for name, row := range made {
		want, ok := recorded[name]
		if !ok {
			t.Errorf("%s is not recorded", name)
		}
		for column, v := range want {
			if f, ok := v.(float64); ok && column == "nmse" { // sums, which another processor may round otherwise
				if got := row[column].(float64); math.Abs(got-f) > 1e-9*f {
					t.Errorf("%s: %s is %v, recorded %v", name, column, got, f)
				}
			} else if row[column] != v {
				t.Errorf("%s: %s is %v, recorded %v", name, column, row[column], v)
			}
		}
	}
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
	want := []string{"allocated_bytes_per_value", "bits_per_value", "codec", "cosine", "data", "decode_gbps", "decode_vs_copy",
		"decoder_bytes_per_value", "dtype", "elements", "encode_gbps", "encode_vs_copy", "encoded_bytes", "encoder_bytes_per_value",
		"feedback", "max_abs_error", "nmse", "ratio", "sign_flips", "skip", "steps", "tensors", "warmup"}
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

// Where no codec takes the data, there is no row to print, and that is an error.
func TestBenchCodecsOfNothing(t *testing.T) {
	for _, more := range []string{"--rounds=1", "--json"} {
		out, _, err := runBench("codecs", "--mib=1", "--codec=rice", "--data=cnn", "--data=lm", more)
		const want = "bench codecs: no codec takes the elements of cnn, lm: name data that it takes, such as --data keys"
		if strings.Count(out, "\n") > 1 || err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v after %q, want a line that begins with %q", more, err, out, want)
		}
	}
	if _, _, err := runBench("codecs", "--mib=1", "--rounds=1", "--codec=rice", "--data=lm", "--data=keys"); err != nil {
		t.Errorf("rice takes keys: %v", err)
	}
}

// A plot is drawn by another program, and a user is told so before anything is measured, whatever the file.
func TestBenchCodecsPlot(t *testing.T) {
	for _, args := range [][]string{{"--plot", "lm.svg"}, {"--plot="}} {
		out, _, err := runBench(append([]string{"codecs", "--codec=int8", "--data=lm"}, args...)...)
		if _, ok := err.(*usageError); !ok || out != "" || !strings.Contains(err.Error(), "go run ./integration/cmd/codecplot") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v after %q", args, err, out)
		}
	}
}

// "all" stands for every codec, also beside other names; it is the default.
func TestBenchCodecsAll(t *testing.T) {
	names := func(f benchFlags) (list []string) {
		f.mib, f.rounds = 1, 1
		c, err := f.config()
		if err != nil {
			t.Fatal(err)
		}
		for _, codec := range c.Codecs {
			list = append(list, codec.String())
		}
		for _, d := range c.Data {
			list = append(list, d.Name)
		}
		return list
	}
	none := names(benchFlags{})
	if got := names(benchFlags{codecs: []string{"all"}}); !slices.Equal(got, none) || !slices.Contains(got, "3lc") || !slices.Contains(got, "lm") {
		t.Errorf("all is %q, and nothing %q", got, none)
	}
	got := names(benchFlags{codecs: []string{"int4(block=32)", "all"}, data: []string{"all"}})
	if got[0] != "int4(block=32)" || got[1] != none[0] || !slices.Contains(got, "normal") || !slices.Contains(got, "lm-bf16") {
		t.Errorf("%q", got)
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
	if _, _, err := runBench("codecs", "--sums=weights"); err == nil || !strings.Contains(err.Error(), "--sums weights: the only value is gradients") {
		t.Errorf("unknown sums: %v", err)
	}
	if _, _, err := runBench(); err == nil || !strings.Contains(err.Error(), "bench --help") {
		t.Errorf("bench alone: %v", err)
	}
}

// The papers' tables and the tunnel are measured by other programs. Where their sources are not, a user is told so,
// whatever the flags.
func TestBenchElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, mod := range []string{"", "module example.org/other\n\nrequire github.com/gradproxy/gradproxy v1.0.0\n"} {
		if mod != "" {
			source(t, "go.mod", mod)
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"papers"}, "go run ./integration/cmd/papers"},
			{[]string{"papers", "--quick", "--paper=3lc", "--json"}, "go run ./integration/cmd/papers"},
			{[]string{"tunnel", "--json"}, "go run ./integration/cmd/benchtunnel"},
		} {
			_, _, err := runBench(c.args...)
			if _, ok := err.(*usageError); !ok || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v; want one line that names the other program, and exit code 2", c.args, err)
			}
		}
	}
}

// source writes a file, and makes its folder.
func source(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// In a checkout, and below its root, the commands run these programs at the root, with the same flags and exit codes.
func TestBenchInACheckout(t *testing.T) {
	root := t.TempDir()
	source(t, filepath.Join(root, "go.mod"), module+"\ngo 1.24\n")
	for _, name := range []string{"papers", "benchtunnel"} {
		source(t, filepath.Join(root, "integration", "cmd", name, "main.go"), `package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir, _ := os.Getwd()
	fmt.Println("`+name+`", filepath.Base(dir), os.Args[1:])
	os.Exit(len(os.Args) - 1)
}
`)
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	for _, dir := range []string{".", "integration/cmd"} {
		t.Chdir(filepath.Join(root, dir))
		for _, c := range []struct {
			args []string
			want string
			code int
		}{
			{[]string{"tunnel", "--json", "--help", "x"}, fmt.Sprintln("benchtunnel", filepath.Base(root), "[--json --help x]"), 3},
			{[]string{"papers"}, fmt.Sprintln("papers", filepath.Base(root), "[]"), 0},
		} {
			var stdout, stderr strings.Builder
			if code := execute(t.Context(), append([]string{"bench"}, c.args...), &stdout, &stderr); code != c.code || stdout.String() != c.want || stderr.Len() > 0 {
				t.Errorf("in %s, %q: code %d, %q, %q; want code %d and %q", dir, c.args, code, stdout.String(), stderr.String(), c.code, c.want)
			}
		}
	}
	source(t, filepath.Join(root, "integration", "cmd", "papers", "main.go"), "package main\n")
	var stdout, stderr strings.Builder
	if code := execute(t.Context(), []string{"bench", "papers"}, &stdout, &stderr); code == 0 || stderr.Len() == 0 {
		t.Errorf("a program that cannot be built: code %d, %q", code, stderr.String())
	}
}
