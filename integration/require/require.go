// Package require decides how a test ends when something that it needs is missing: the test is skipped, the skip
// names the missing thing, and where that thing is declared present (GRADPROXY_REQUIRE=root,nft,torch) the skip
// is a failure, so that a skip cannot rot.
package require

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that lists, separated by commas, the things that must be present.
const Variable = "GRADPROXY_REQUIRE"

// Named skips t unless present; hint says how to get the thing. The skip is a failure where Variable lists name.
func Named(t testing.TB, name string, present bool, hint string) {
	t.Helper()
	if present {
		return
	}
	if Declared(name) {
		t.Fatalf("%s is missing, though %s declares it present: %s", name, Variable, hint)
	}
	t.Skipf("needs %s: %s", name, hint)
}

// Declared reports whether Variable lists name.
func Declared(name string) bool {
	return slices.Contains(strings.Split(os.Getenv(Variable), ","), name)
}

// Root skips t unless it runs as root, which network namespaces, TUN devices and nftables need.
func Root(t testing.TB) {
	t.Helper()
	Named(t, "root", os.Geteuid() == 0, "run the tests as root")
}

// Command skips t unless the program is on the PATH.
func Command(t testing.TB, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	Named(t, program, err == nil, "install the package that has it")
}
