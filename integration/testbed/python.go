//go:build linux

package testbed

import (
	"os"
	"path/filepath"
)

// Python returns the interpreter of an environment that integration/env/install.sh makes, and whether it is complete.
// install.sh lists the names.
func Python(name string) (interpreter string, complete bool) {
	if name == "torch113" { // Debian's package
		_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
		return "/usr/bin/python3", err == nil
	}
	venv := filepath.Join(environments(), name)
	_, err := os.Stat(filepath.Join(venv, ".complete"))
	return filepath.Join(venv, "bin", "python"), err == nil
}

// environments returns the folder that install.sh fills.
func environments() string {
	if dir := os.Getenv("GRADPROXY_ENV"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "gradproxy", "env")
	}
	return filepath.Join(os.Getenv("HOME"), ".cache", "gradproxy", "env")
}
