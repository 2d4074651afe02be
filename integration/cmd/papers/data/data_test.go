package data

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Three images of 2 x 2 as the files have them: big-endian sizes, then bytes.
func TestFashionReadsIDX(t *testing.T) {
	dir := t.TempDir()
	images := append([]byte{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2}, 0, 51, 102, 153, 204, 255, 0, 0, 1, 2, 3, 4)
	labels := []byte{0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9}
	for _, set := range []string{"train", "t10k"} {
		write(t, filepath.Join(dir, "fashion-mnist", set+"-images-idx3-ubyte.gz"), gzipped(images))
		write(t, filepath.Join(dir, "fashion-mnist", set+"-labels-idx1-ubyte.gz"), gzipped(labels))
	}
	set, test, err := Fashion(dir)
	if err != nil {
		t.Fatal(err)
	}
	if set.Side != 2 || set.Len() != 3 || !slices.Equal(set.Labels, []uint8{7, 0, 9}) || !slices.Equal(set.Pixels[:6], []float32{0, 0.2, 0.4, 0.6, 0.8, 1}) {
		t.Errorf("%+v", set)
	}
	pixels, gathered := set.Gather(nil, nil, []int{2, 0})
	if !slices.Equal(gathered, []uint8{9, 7}) || pixels[0] != float32(1)/255 || pixels[5] != 0.2 {
		t.Errorf("images 2 and 0 are %v, %v", pixels, gathered)
	}
	Standardize(&set, &test)
	sum, squares := 0.0, 0.0
	for _, v := range set.Pixels {
		sum, squares = sum+float64(v)/12, squares+float64(v)*float64(v)/12
	}
	if math.Abs(sum) > 1e-6 || math.Abs(squares-1) > 1e-6 || !slices.Equal(set.Pixels, test.Pixels) {
		t.Errorf("mean %v, mean square %v of %v", sum, squares, set.Pixels)
	}

	broken := map[string][]byte{
		"no gzip":         []byte("text"),
		"it is no file":   gzipped(append([]byte{0, 0, 9, 3}, images[4:]...)),
		"unexpected EOF":  gzipped(images[:20]),
		"has shape":       gzipped([]byte{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 9}),
		"3 labels for im": gzipped(append([]byte{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2}, 1, 2, 3, 4)),
	}
	for says, b := range broken {
		write(t, filepath.Join(dir, "fashion-mnist", "train-images-idx3-ubyte.gz"), b)
		if _, _, err := Fashion(dir); err == nil || says != "no gzip" && !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to say %q", err, says)
		}
	}
	os.Remove(filepath.Join(dir, "fashion-mnist", "t10k-labels-idx1-ubyte.gz"))
	write(t, filepath.Join(dir, "fashion-mnist", "train-images-idx3-ubyte.gz"), gzipped(images))
	if _, _, err := Fashion(dir); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "apt-get install dataset-fashion-mnist") {
		t.Errorf("without a file: %v", err)
	}
}

// The package's mails, in a small: "free money" is in both spams, "money" in all mails, and the most frequent n-gram
// comes first.
func TestNGrams(t *testing.T) {
	dir := t.TempDir()
	if _, err := NGrams(dir, 2, 1); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "fetch.sh "+dir) {
		t.Errorf("without the package: %v", err)
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range [][2]string{
		{"package/data/spam-1/00001.b.txt", "Subject: gold\n\nFREE money, free money!"},
		{"package/data/spam-1/00001.b.json", `{"text":"not this"}`},
		{"package/README.md", "nor this"},
		{"package/data/easy-ham-1/00001.a.txt", "Subject: hello\n\nYour money"},
		{"package/data/spam-1/00002.c.txt", "Subject: x\r\n\r\nFree MONEY"},
	} {
		w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o600})
		w.Write([]byte(f[1]))
	}
	w.Close()
	write(t, filepath.Join(dir, mailsFile), gzipped(packed.Bytes()))
	m, err := NGrams(dir, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	// Ham comes first by name. Of 6 features, "money" is in three mails, "free" and "free money" in two, and "money
	// free", "your", "your money" in one.
	if m.Width != 6 || !slices.Equal(m.Labels, []int8{-1, 1, 1}) || !slices.Equal(m.Starts, []int{0, 3, 7, 10}) {
		t.Fatalf("%+v", m)
	}
	if ham, values := m.Row(0); ham[0] != 0 || ham[1] < 3 || ham[2] < 3 || math.Abs(float64(values[0])-1/math.Sqrt(3)) > 1e-6 {
		t.Errorf("the ham is %v %v", ham, values)
	}
	if spam, _ := m.Row(2); !slices.Equal(spam, []uint32{0, 1, 2}) {
		t.Errorf("the second spam is %v", spam)
	}
	if few, err := NGrams(dir, 2, 2); err != nil || few.Width != 3 || !slices.Equal(few.Starts, []int{0, 1, 4, 7}) {
		t.Errorf("in two mails at least: %+v, %v", few, err)
	}
	whole := gzipped(packed.Bytes())
	write(t, filepath.Join(dir, mailsFile), whole[:len(whole)-20])
	if _, err := NGrams(dir, 2, 1); err == nil || !strings.Contains(err.Error(), mailsFile) {
		t.Errorf("cut off: %v", err)
	}
}
