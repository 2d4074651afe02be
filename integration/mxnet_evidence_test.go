//go:build linux

package integration

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// alike compares what the workers of testdata/mxnet_job.py have written into folder, and returns the names under which not
// all have the same hash. It fails the test unless all have at least min of the names.
func alike(t *testing.T, folder string, workers, min int) (different []string) {
	t.Helper()
	first := map[string]string{} // hash that was seen first
	seen := map[string]int{}     // by how many workers
	for rank := range workers {
		f, err := os.Open(filepath.Join(folder, fmt.Sprintf("%d.alike", rank)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		own := map[string]bool{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			name, hash, _ := strings.Cut(lines.Text(), " ")
			if h, ok := first[name]; !ok {
				first[name] = hash
			} else if h != hash {
				different = append(different, fmt.Sprintf("%s of worker %d", name, rank))
			}
			own[name] = true
		}
		for name := range own {
			seen[name]++
		}
	}
	common := 0
	for _, n := range seen {
		if n == workers {
			common++
		}
	}
	t.Logf("the workers have %d arrays and rows in common, %d in all; %d times one has another", common, len(first), len(different))
	if common < min {
		t.Errorf("the workers have %d arrays and rows in common, want %d: the test shows little", common, min)
	}
	return different
}
