package require

import (
	"os"
	"path/filepath"
	"testing"
)

// CapturesVariable is the environment variable that names the directory of recorded jobs: packet captures, and beside
// each a file with its truth. They are too large for the repository.
const CapturesVariable = "GRADPROXY_CAPTURES"

// Captures skips t unless there is a directory of recorded jobs, and returns its files whose names match pattern
// (filepath.Match), one at least.
func Captures(t testing.TB, pattern string) []string {
	t.Helper()
	dir := os.Getenv(CapturesVariable)
	Named(t, "captures", dir != "", "set "+CapturesVariable+" to a directory of captures with their truth")
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s (%v)", pattern, dir, err)
	}
	return files
}
