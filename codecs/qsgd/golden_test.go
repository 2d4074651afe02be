package qsgd

import (
	"os/exec"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/integration/require"
)

func TestGoldenVectors(t *testing.T) { codectest.Golden(t, parse) }

// The vectors are what an implementation makes that shares nothing with this package but its comment.
func TestGoldenVectorsElsewhere(t *testing.T) {
	require.Command(t, "python3")
	if out, err := exec.CommandContext(t.Context(), "python3", "-B", "testdata/reference.py", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
