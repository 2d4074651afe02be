package codectest

import (
	"os/exec"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// Elsewhere checks that testdata/reference.py, which knows the method and nothing of this module, makes the golden
// vectors that lie beside it.
func Elsewhere(t *testing.T) {
	t.Helper()
	require.Command(t, "python3")
	// -B: imports leave no compiled files in the tree.
	if out, err := exec.CommandContext(t.Context(), "python3", "-B", "testdata/reference.py", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
