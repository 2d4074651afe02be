package reference_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

var update = flag.Bool("update", false, "write the encodings of testdata anew; look at each difference before committing it")

// A vector is a file of testdata: lines "name: value", then parts that begin with a line of their name:
//
//	held:       a value that both ends are set to, or several in turn
//	elements:   the next value, which is coded
//	bytes:      its encoding, in hex
//	delivered:  the values that it decodes to, if they are not elements
//
// All parts but the first may follow each other several times. Elements are one a line: a number in C's hex notation or
// in decimal, "bits X" for any bits; "x N" after one repeats it. The expected result is "ok"; "unsuited" for the last
// value; or for the last encoding "corrupt, " or "reference, " and a part of the error.
type vector struct {
	header map[string]string
	parts  []part
}

type part struct {
	name  string
	lines []string
}

func readVector(t testing.TB, path string) vector {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := vector{header: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, ":")
		switch last := len(v.parts) - 1; {
		case line == "":
		case ok && slices.Contains([]string{"held", "elements", "bytes", "delivered"}, name):
			v.parts = append(v.parts, part{name: name})
		case last >= 0:
			v.parts[last].lines = append(v.parts[last].lines, line)
		case ok:
			v.header[name] = strings.TrimSpace(value)
		default:
			t.Fatalf("%s: unknown line %q", path, line)
		}
	}
	for _, name := range []string{"# from", "codec", "dtype", "expect"} {
		if v.header[name] == "" {
			t.Fatalf("%s: the line %q is missing", path, name)
		}
	}
	return v
}

func (v vector) dtype(t testing.TB) tensor.DType {
	d, ok := tensor.ParseDType(v.header["dtype"])
	if !ok {
		t.Fatalf("unknown dtype %q", v.header["dtype"])
	}
	return d
}

// block returns the elements of a part.
func (p part) block(t testing.TB, d tensor.DType) (b []byte) {
	t.Helper()
	for _, line := range p.lines {
		number, times, repeated := strings.Cut(line, " x ")
		n, err := 1, error(nil)
		if repeated {
			n, err = strconv.Atoi(times)
		}
		e, err2 := element(d, number)
		if err := errors.Join(err, err2); err != nil {
			t.Fatalf("element %q: %v", line, err)
		}
		b = append(b, bytes.Repeat(e, n)...)
	}
	return b
}

func element(d tensor.DType, s string) ([]byte, error) {
	integer := func(x uint64) []byte {
		b := make([]byte, 8)
		for i := range b {
			b[i] = byte(x >> (8 * i))
		}
		return b[:d.Size()]
	}
	if bits, ok := strings.CutPrefix(s, "bits "); ok {
		x, err := strconv.ParseUint(bits, 16, 64)
		return integer(x), err
	}
	if d.Float() {
		x, err := strconv.ParseFloat(s, 64)
		return block([]float64{x}, d), err
	}
	x, err := strconv.ParseInt(s, 10, 64)
	return integer(uint64(x)), err
}

func (p part) hex(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(p.lines, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func vectors(t testing.TB) []string {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden vectors in testdata: %v", err)
	}
	return paths
}

// The files of testdata define the wire form: encoders make these bytes, and decoders read them and refuse broken ones.
func TestGoldenVectors(t *testing.T) {
	for _, path := range vectors(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			v := readVector(t, path)
			d := v.dtype(t)
			n, err := strconv.Atoi(v.header["n"]) // where nothing is held
			if v.parts[0].name != "bytes" {
				n, err = len(v.parts[0].block(t, d))/d.Size(), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			e := sameDirection(t, mustNew(t, v.header["codec"]), d, n)
			for i := range v.parts {
				e.play(t, v, i)
			}
			if *update {
				v.write(t, path)
			}
		})
	}
}

// play carries out part i of v.
func (e *ends) play(t *testing.T, v vector, i int) {
	p, last := &v.parts[i], i == len(v.parts)-1
	switch p.name {
	case "held":
		b := p.block(t, e.dtype)
		e.near.Set(b)
		e.far.Set(b)
	case "elements":
		x := p.block(t, e.dtype)
		encoded, err := e.enc.Append(nil, x)
		if last {
			if v.header["expect"] != "unsuited" || !errors.Is(err, codecs.ErrUnsuited) {
				t.Errorf("encoded as %x, %v; want %s", encoded, err, v.header["expect"])
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			v.parts[i+1].lines = hexLines(encoded)
		}
		if want := v.parts[i+1].hex(t); !bytes.Equal(encoded, want) {
			t.Errorf("encoded as\n%s\nwant\n%s", strings.Join(hexLines(encoded), "\n"), strings.Join(hexLines(want), "\n"))
		}
	case "bytes":
		got := make([]byte, e.far.Size())
		err := e.dec.Decode(got, p.hex(t))
		if kind, why, ok := strings.Cut(v.header["expect"], ", "); ok && last {
			if !errors.Is(err, codecs.ErrCorrupt) || errors.Is(err, reference.ErrReference) != (kind == "reference") || !strings.Contains(err.Error(), why) {
				t.Errorf("%v; want %s", err, v.header["expect"])
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := v.parts[i-1].block(t, e.dtype)
		if !last && v.parts[i+1].name == "delivered" {
			want = v.parts[i+1].block(t, e.dtype)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("decoded as\n%x\nwant\n%x", got, want)
		}
		e.agree(t, want)
	}
}

func hexLines(b []byte) (lines []string) {
	for c := range slices.Chunk(b, 32) {
		lines = append(lines, fmt.Sprintf("% x", c))
	}
	return lines
}

func (v vector) write(t *testing.T, path string) {
	var b strings.Builder
	for _, name := range []string{"# from", "codec", "dtype", "n", "expect"} {
		if v.header[name] != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v.header[name])
		}
	}
	for _, p := range v.parts {
		fmt.Fprintf(&b, "%s:\n", p.name)
		for _, line := range p.lines {
			fmt.Fprintln(&b, line)
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A receiver that shares nothing with the package but its comment reads every good vector alike, versions and hashes
// too.
func TestGoldenVectorsElsewhere(t *testing.T) {
	require.Command(t, "python3")
	var args, want []string
	for _, path := range vectors(t) {
		v := readVector(t, path)
		if v.header["expect"] != "ok" {
			continue
		}
		args = append(args, path)
		d := v.dtype(t)
		for i, p := range v.parts {
			if p.name == "elements" && i+2 < len(v.parts) && v.parts[i+2].name == "delivered" {
				continue
			}
			if p.name == "elements" || p.name == "delivered" {
				want = append(want, hex.EncodeToString(p.block(t, d)))
			}
		}
	}
	out, err := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/decode.py"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("decode.py says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
