package require

import (
	"os"
	"path/filepath"
	"testing"
)

// GradientsVariable is the environment variable that names the folder of recorded gradients, which
// go run ./integration/cmd/recordgradients fills. They are too large for the repository.
const GradientsVariable = "GRADPROXY_GRADIENTS"

// Gradients skips t unless there is a folder of recorded gradients, and returns its files: .npy arrays of shape (steps,
// elements), one file for each model. There are at least two.
func Gradients(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv(GradientsVariable)
	Named(t, "gradients", dir != "", "set "+GradientsVariable+" to the folder that go run ./integration/cmd/recordgradients prints")
	files, err := filepath.Glob(filepath.Join(dir, "*.npy"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d recorded gradients in %s, want those of 2 models at least (%v)", len(files), dir, err)
	}
	return files
}
