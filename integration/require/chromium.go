package require

import (
	"os/exec"
	"testing"
)

// Chromium skips t unless the browser is there, and returns its path.
func Chromium(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	Named(t, "chromium", err == nil, "integration/env/install.sh chromium")
	return path
}
