package digits

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// The README states which file this is.
func TestFileIsTheOneTheREADMECites(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(file)
	if !strings.Contains(string(readme), hex.EncodeToString(sum[:])) {
		t.Errorf("README.md does not cite sha256 %x", sum)
	}
}

func TestLoadSplitsAllImages(t *testing.T) {
	train, test := Load()
	if train.Len() != 1442 || test.Len() != 355 {
		t.Fatalf("%d images to train on and %d to test with, want 1442 and 355", train.Len(), test.Len())
	}
	for name, s := range map[string]Set{"train": train, "test": test} {
		if len(s.Images) != s.Len()*Pixels {
			t.Errorf("%s: %d pixels for %d images", name, len(s.Images), s.Len())
		}
		var ofClass [Classes]int
		for _, l := range s.Labels {
			ofClass[l]++
		}
		for digit, n := range ofClass {
			if n < s.Len()/Classes*7/10 {
				t.Errorf("%s: only %d of %d images show a %d", name, n, s.Len(), digit)
			}
		}
		for i, v := range s.Images {
			if v < 0 || v > 1 {
				t.Fatalf("%s: pixel %d is %v", name, i, v)
			}
		}
	}
	// The file's first line: a zero, whose first row is 0,0,5,13,9,1,0,0.
	if want := []float32{0, 0, 5. / 16, 13. / 16, 9. / 16, 1. / 16, 0, 0}; train.Labels[0] != 0 || !equal(train.Image(0)[:8], want) {
		t.Errorf("first image: label %d, first row %v", train.Labels[0], train.Image(0)[:8])
	}
}

func TestMovedImagesKeepTheirShape(t *testing.T) {
	train, _ := Load()
	still, rightUp := train.AppendMoved(nil, 7, 0, 0), train.AppendMoved(nil, 7, 1, -1)
	if !equal(still, train.Image(7)) {
		t.Errorf("an image that is not moved became %v", still)
	}
	for y := range side {
		for x := range side {
			var want float32
			if x > 0 && y < side-1 {
				want = still[side*(y+1)+x-1]
			}
			if got := rightUp[side*y+x]; got != want {
				t.Fatalf("row %d, column %d: %v, want %v", y, x, got, want)
			}
		}
	}
	if got := train.AppendMoved([]float32{9}, 7, 0, 0); got[0] != 9 || !equal(got[1:], still) {
		t.Error("what was there before is gone")
	}
}

func TestBrokenFilesAreErrors(t *testing.T) {
	row := strings.Repeat("0,", Pixels)
	for name, text := range map[string]string{"short": row, "pixel": "17," + row[2:] + "1\n", "label": row + "10\n", "letter": "x," + row[2:] + "1\n"} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		if _, err := read(b.Bytes()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := read(file[:len(file)/2]); err == nil {
		t.Error("truncated: no error")
	}
}

func equal(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
