package require

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Prometheus skips t unless a Prometheus is there, on the PATH or as integration/env/install.sh puts it, and returns
// the paths of the server and of promtool.
func Prometheus(t testing.TB) (server, promtool string) {
	t.Helper()
	server, promtool = environment("prometheus", "prometheus"), environment("prometheus", "promtool")
	Named(t, "prometheus", server != "" && promtool != "", "integration/env/install.sh prometheus")
	return server, promtool
}

// environment returns the path of a program on the PATH, or else of a Debian package that integration/env/install.sh
// has unpacked in a folder of that name; "": it is not there.
func environment(folder, program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	path := filepath.Join(environments(), folder, "usr", "bin", program)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// environments returns the folder that integration/env/install.sh fills; "": there is none.
func environments() string {
	if root := os.Getenv("GRADPROXY_ENV"); root != "" {
		return root
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "gradproxy", "env")
}
