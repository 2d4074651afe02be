//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notes are hashes of values that should have the same bits for all workers, which write them down with --alike.
type notes struct {
	hashes    map[string]string // by name, of the first worker that has one
	common    int               // names that all workers have
	different []string          // names for which a worker has another hash, with the worker
}

// readNotes reads the workers' notes in folder.
func readNotes(t *testing.T, folder string, workers int) notes {
	t.Helper()
	n := notes{hashes: map[string]string{}}
	have := map[string]int{}
	for rank := range workers {
		text, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.alike", rank)))
		if err != nil {
			t.Fatal(err)
		}
		own := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			name, hash, _ := strings.Cut(line, " ")
			if first, ok := n.hashes[name]; !ok {
				n.hashes[name] = hash
			} else if hash != first {
				n.different = append(n.different, fmt.Sprintf("%s of worker %d", name, rank))
			}
			if !own[name] {
				have[name]++
			}
			own[name] = true
		}
	}
	for _, k := range have {
		if k == workers {
			n.common++
		}
	}
	t.Logf("%d arrays and rows, %d of them on all workers; %d times a worker has another", len(n.hashes), n.common, len(n.different))
	return n
}

// wantFirst fails the test unless the first weights, rows of embeddings included, are equal to the first weights of
// another run.
func (n notes) wantFirst(t *testing.T, other notes) {
	t.Helper()
	seen := 0
	for name, hash := range other.hashes {
		if !strings.HasPrefix(name, "first.") && !strings.HasPrefix(name, "0.rows.") {
			continue
		}
		seen++
		if n.hashes[name] != hash {
			t.Errorf("first weights %s are not those of the direct run", name)
		}
	}
	if seen == 0 {
		t.Error("the direct run noted no first weights: the test shows nothing")
	}
}
