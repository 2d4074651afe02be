package npy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// file makes one as numpy.save does: version 1.0, the header padded to 64 bytes.
func file(descr, order, shape string, data []byte) []byte {
	h := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr, order, shape)
	h += strings.Repeat(" ", 63-(10+len(h))%64) + "\n"
	return append([]byte("\x93NUMPY\x01\x00"+string([]byte{byte(len(h)), byte(len(h) >> 8)})+h), data...)
}

func TestParse(t *testing.T) {
	data := []byte("abcdefghijklmnopqrstuvwx")
	for _, c := range []struct {
		descr, shape string
		want         Array
	}{
		{"<f4", "6,", Array{tensor.Float32, 1, 6, data}},
		{"<f4", "2, 3", Array{tensor.Float32, 2, 3, data}},
		{"<V2", "3, 4", Array{tensor.BFloat16, 3, 4, data}},
		{"|u1", "24,", Array{tensor.Uint8, 1, 24, data}},
		{"<i8", "3, 1", Array{tensor.Int64, 3, 1, data}},
	} {
		got, err := Parse(file(c.descr, "False", c.shape, data))
		if err != nil || got.DType != c.want.DType || got.Rows != c.want.Rows || got.Cols != c.want.Cols || !bytes.Equal(got.Data, data) {
			t.Errorf("%s (%s): %+v, %v; want %+v", c.descr, c.shape, got, err, c.want)
		}
	}
	two, err := Parse(file("<f4", "False", "2, 3", data))
	if err != nil {
		t.Fatal(err)
	}
	if string(two.Row(1)) != "mnopqrstuvwx" {
		t.Errorf("row 1 is %q", two.Row(1))
	}
}

func TestBadFilesSayWhat(t *testing.T) {
	data := make([]byte, 24)
	for _, c := range []struct {
		file []byte
		says string
	}{
		{nil, "does not begin with"},
		{[]byte("PK\x03\x04 some zip file"), "does not begin with"},
		{file("<f4", "False", "6,", data)[:40], "cut short"},
		{file("<f4", "False", "7,", data), "24 bytes are not 1 x 7"},
		{file("<f4", "False", "4611686018427387904, 4", data), "are not"},
		{file("<f4", "False", "1, 2, 3", data), "one dimension, or two"},
		{file("<f4", "False", "", data), "one dimension, or two"},
		{file(">f4", "False", "6,", data), "little-endian"},
		{file("<c8", "False", "3,", data), "little-endian"},
		{file("<f4", "True", "2, 3", data), "column by column"},
		{file("<f4", "Perhaps", "2, 3", data), "unknown header"},
	} {
		if _, err := Parse(c.file); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60q: %v; want an error that says %q", c.file, err, c.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file("<f4", "False", "2, 3", make([]byte, 24)))
	f.Add(file("|u1", "True", "0, 7", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Parse(b)
		if err == nil && a.Rows*a.Cols*a.DType.Size() != len(a.Data) {
			t.Errorf("%d x %d of %v in %d bytes", a.Rows, a.Cols, a.DType, len(a.Data))
		}
		for i := 0; err == nil && i < min(a.Rows, 100); i++ {
			a.Row(i)
		}
	})
}
