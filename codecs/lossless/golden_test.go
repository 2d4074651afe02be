package lossless

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tensor"
)

var update = flag.Bool("update", false, "write the encodings of testdata anew; look at each difference before committing it")

// A vector is a file of testdata: header lines "name: value", then after "elements:" the block, then after "bytes:" its
// encoding in hex. Elements are one a line: a number in C's hex notation, for floats, in decimal for integers, "bits X"
// for any bits; "x N" after one repeats it.
type vector struct {
	from, codec, dtype, expect string
	n                          int // elements, in a vector of a bad encoding, which has none to count
	elements                   []string
	bytes                      []byte
}

func readVector(t *testing.T, path string) (v vector) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	headers := map[string]*string{"# from": &v.from, "codec": &v.codec, "dtype": &v.dtype, "expect": &v.expect}
	part := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "elements:" || line == "bytes:":
			part = name
		case part == "elements" && line != "":
			v.elements = append(v.elements, line)
		case part == "bytes":
			b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			v.bytes = append(v.bytes, b...)
		case name == "n":
			if v.n, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		case headers[name] != nil:
			*headers[name] = strings.TrimSpace(value)
		case line != "" && line[0] != '#':
			t.Fatalf("%s: unknown line %q", path, line)
		}
	}
	if v.from == "" || v.codec == "" || v.dtype == "" || v.expect == "" {
		t.Fatalf("%s: a header line is missing", path)
	}
	return v
}

// block returns the elements as bytes.
func (v vector) block(t *testing.T) (d tensor.DType, b []byte) {
	t.Helper()
	d, ok := tensor.ParseDType(v.dtype)
	if !ok {
		t.Fatalf("unknown dtype %q", v.dtype)
	}
	for _, line := range v.elements {
		number, times, repeated := strings.Cut(line, " x ")
		k := 1
		if repeated {
			var err error
			if k, err = strconv.Atoi(times); err != nil {
				t.Fatal(err)
			}
		}
		e, err := element(d, number)
		if err != nil {
			t.Fatalf("element %q: %v", line, err)
		}
		b = append(b, bytes.Repeat(e, k)...)
	}
	return d, b
}

func element(d tensor.DType, s string) ([]byte, error) {
	b := make([]byte, 8)
	put := func(x uint64) []byte {
		for i := range b {
			b[i] = byte(x >> (8 * i))
		}
		return b[:d.Size()]
	}
	if bits, ok := strings.CutPrefix(s, "bits "); ok {
		x, err := strconv.ParseUint(bits, 16, 64)
		return put(x), err
	}
	if !d.Float() {
		if x, err := strconv.ParseUint(s, 10, 64); err == nil {
			return put(x), nil
		}
		x, err := strconv.ParseInt(s, 10, 64)
		return put(uint64(x)), err
	}
	x, err := strconv.ParseFloat(s, 64)
	if d == tensor.Float64 {
		return put(math.Float64bits(x)), err
	}
	tensor.FromFloat32(b[:d.Size()], []float32{float32(x)}, d)
	return b[:d.Size()], err
}

// The files of testdata define the wire form: encoders make these bytes, and decoders read them and refuse broken ones.
func testGoldenVectors(t *testing.T) {
	for _, path := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			v := readVector(t, path)
			c, err := codectest.Parse(v.codec, FromArgs)
			if err != nil {
				t.Fatal(err)
			}
			d, block := v.block(t)
			switch v.expect {
			case "ok":
				v.checkGood(t, path, c, d, block)
			case "unsuited":
				e, err := c.NewEncoder(d, len(block)/d.Size())
				if err != nil {
					t.Fatal(err)
				}
				if b, err := e.Append(nil, block); !errors.Is(err, codecs.ErrUnsuited) {
					t.Errorf("encoded as %x, %v; want ErrUnsuited", b, err)
				}
			default:
				why, ok := strings.CutPrefix(v.expect, "corrupt, ")
				if !ok {
					t.Fatalf("unknown expectation %q", v.expect)
				}
				dec, err := c.NewDecoder(d, v.n)
				if err != nil {
					t.Fatal(err)
				}
				err = dec.Decode(make([]byte, v.n*d.Size()), v.bytes)
				if !errors.Is(err, codecs.ErrCorrupt) || !strings.Contains(err.Error(), why) {
					t.Errorf("%v; want ErrCorrupt that says %q", err, why)
				}
			}
		})
	}
}

// A decoder that shares nothing with the package but its comment and RFC 8878 reads every good vector alike.
func testGoldenVectorsElsewhere(t *testing.T) {
	require.Command(t, "python3")
	var args, want []string
	for _, path := range goldenFiles(t) {
		if v := readVector(t, path); v.expect == "ok" {
			_, block := v.block(t)
			args, want = append(args, path), append(want, hex.EncodeToString(block))
		}
	}
	out, err := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/decode.py"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Fields(string(out))
	if len(got) != len(want) {
		t.Fatalf("%d lines for %d vectors", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: decode.py says\n%s\nwant\n%s", args[i], got[i], want[i])
		}
	}
}

func (v vector) checkGood(t *testing.T, path string, c codecs.Codec, d tensor.DType, block []byte) {
	n := len(block) / d.Size()
	e, err := c.NewEncoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := c.NewDecoder(d, n)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Append(nil, block)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		rewrite(t, path, got)
		v.bytes = got
	}
	if !bytes.Equal(got, v.bytes) {
		t.Errorf("encoded as\n%swant\n%s", dump(got), dump(v.bytes))
	}
	back := make([]byte, len(block))
	if err := dec.Decode(back, v.bytes); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back, block) {
		t.Errorf("decoded as\n%swant\n%s", dump(back), dump(block))
	}
}

// rewrite replaces the bytes of the vector in path.
func rewrite(t *testing.T, path string, b []byte) {
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(old, []byte("\nbytes:\n"))
	if err := os.WriteFile(path, fmt.Appendf(head, "\nbytes:\n%s", dump(b)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 32 {
		fmt.Fprintf(&s, "% x\n", b[i:min(len(b), i+32)])
	}
	return s.String()
}
