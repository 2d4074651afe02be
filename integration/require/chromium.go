package require

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Chromium skips t unless the browser is there, and returns its path.
func Chromium(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	Named(t, "chromium", err == nil, "integration/env/install.sh chromium")
	return path
}

// Axe skips t unless axe-core is there, which judges pages by the rules of accessibility, and returns its script.
func Axe(t testing.TB) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(environments(), "axe-core", "axe.min.js"))
	Named(t, "axe-core", err == nil, "integration/env/install.sh axe-core")
	return string(script)
}
